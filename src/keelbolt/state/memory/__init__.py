"""Short-term memory of conversations: recent turns in full, older turns as a stored summary."""

from __future__ import annotations

from keelbolt.state.memory.config import (
    MemoryBudget,
    MemoryIsolation,
    ShortTermMemoryConfig,
    default_token_estimator,
)
from keelbolt.state.memory.conversation import MemoryConversation, Summarizer
from keelbolt.state.memory.health import MemoryHealth
from keelbolt.state.memory.memory import MemoryKey, ShortTermMemory, resolve_key
from keelbolt.state.memory.summarizers import summarizer_of
from keelbolt.state.memory.turns import ConversationTurn, TrajectoryDigest

__all__ = [
    "ConversationTurn",
    "MemoryBudget",
    "MemoryConversation",
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
