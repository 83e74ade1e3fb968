"""A ready executor: a model with tools, built only on the public API of turns."""

from __future__ import annotations

from keelbolt.turns.chat.anthropic import AnthropicModel
from keelbolt.turns.chat.executor import chat_executor
from keelbolt.turns.chat.openai import OpenAIModel
from keelbolt.turns.chat.protocol import (
    CallRequest,
    ChatMessage,
    Delta,
    Model,
    ModelRequest,
    TextDelta,
    ThoughtDelta,
    ToolSpec,
    Usage,
)
from keelbolt.turns.chat.pydantic_ai import PydanticAIModel
from keelbolt.turns.chat.tool import tool

__all__ = [
    "AnthropicModel",
    "CallRequest",
    "ChatMessage",
    "Delta",
    "Model",
    "ModelRequest",
    "OpenAIModel",
    "PydanticAIModel",
    "TextDelta",
    "ThoughtDelta",
    "ToolSpec",
    "Usage",
    "chat_executor",
    "tool",
]
