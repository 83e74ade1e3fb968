"""Short-term memory of conversations: recent turns in full, older turns as a stored summary."""

from __future__ import annotations

from keelbolt.state.memory.conversation import MemoryConversation, Summarizer
from keelbolt.state.memory.memory import MemoryKey, ShortTermMemory, resolve_key, summarizer_of
from keelbolt.state.memory.types import (
    ConversationTurn,
    MemoryBudget,
    MemoryHealth,
    MemoryIsolation,
    ShortTermMemoryConfig,
    TrajectoryDigest,
    default_token_estimator,
)

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
