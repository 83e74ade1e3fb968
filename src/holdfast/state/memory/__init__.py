"""Short-term memory of conversations: recent turns in full, older ones as a summary that, once made, is kept."""

from __future__ import annotations

from holdfast.state.memory.config import (
    MemoryBudget,
    MemoryIsolation,
    ShortTermMemoryConfig,
    default_token_estimator,
)
from holdfast.state.memory.conversation import Conversation, Summarizer
from holdfast.state.memory.health import MemoryHealth
from holdfast.state.memory.keys import MemoryKey, resolve_key
from holdfast.state.memory.memory import ShortTermMemory
from holdfast.state.memory.summarizers import summarizer_of
from holdfast.state.memory.turns import ConversationTurn, TrajectoryDigest

__all__ = [
    "Conversation",
    "ConversationTurn",
    "MemoryBudget",
    "MemoryHealth",
    "MemoryIsolation",
    "MemoryKey",
    "ShortTermMemory",
    "ShortTermMemoryConfig",
    "Summarizer",
    "TrajectoryDigest",
    "default_token_estimator",
    "resolve_key",
    "summarizer_of",
]
