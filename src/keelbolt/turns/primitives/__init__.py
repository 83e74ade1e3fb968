"""The primitives of a turn: frozen, validated when created, and identified by ``id``, not by value."""

from __future__ import annotations

from keelbolt.turns.primitives.artifact import SpooledArtifact
from keelbolt.turns.primitives.checks import MODALITY_HAZARDS, TRUST_TIERS, ModalityHazard, Moment, TrustTier, moment
from keelbolt.turns.primitives.identity import Identity
from keelbolt.turns.primitives.media import MEDIA_KINDS, Media, MediaKind, MediaStashEntry
from keelbolt.turns.primitives.memory import Memory
from keelbolt.turns.primitives.message import Message, Role
from keelbolt.turns.primitives.retrievable import Retrievable
from keelbolt.turns.primitives.text import Encoder, Tokenizable, count_tokens, register_encoding
from keelbolt.turns.primitives.thought import Thought
from keelbolt.turns.primitives.tool_call import AnyResults, Results, ToolCall, tool_call_checksum

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
