"""The primitives of a turn: frozen, validated when created, and identified by ``id``, not by value."""

from __future__ import annotations

from keelbolt.turns.primitives.content import MEDIA_KINDS, Media, MediaKind, MediaStashEntry, SpooledArtifact
from keelbolt.turns.primitives.memory import Memory, Retrievable
from keelbolt.turns.primitives.message import Identity, Message, Role, Thought
from keelbolt.turns.primitives.tool_call import AnyResults, Results, ToolCall, tool_call_checksum
from keelbolt.turns.primitives.values import (
    MODALITY_HAZARDS,
    TRUST_TIERS,
    Encoder,
    ModalityHazard,
    Moment,
    Tokenizable,
    TrustTier,
    count_tokens,
    moment,
    register_encoding,
)

__all__ = [
    "MEDIA_KINDS",
    "MODALITY_HAZARDS",
    "TRUST_TIERS",
    "AnyResults",
    "Encoder",
    "Identity",
    "Media",
    "MediaKind",
    "MediaStashEntry",
    "Memory",
    "Message",
    "ModalityHazard",
    "Moment",
    "Results",
    "Retrievable",
    "Role",
    "SpooledArtifact",
    "Thought",
    "Tokenizable",
    "ToolCall",
    "TrustTier",
    "count_tokens",
    "moment",
    "register_encoding",
    "tool_call_checksum",
]
