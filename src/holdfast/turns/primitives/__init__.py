"""What a turn is made of: frozen, checked when made, and known by their ``id``, not by their value."""

from __future__ import annotations

from holdfast.turns.primitives.artifact import SpooledArtifact
from holdfast.turns.primitives.checksum import tool_call_checksum
from holdfast.turns.primitives.identity import Identity
from holdfast.turns.primitives.media import MEDIA_KINDS, Media, MediaKind, MediaStashEntry
from holdfast.turns.primitives.memory import Memory
from holdfast.turns.primitives.message import Message, Role
from holdfast.turns.primitives.retrievable import Retrievable
from holdfast.turns.primitives.text import Encoder, Tokenizable, count_tokens, register_encoding
from holdfast.turns.primitives.thought import Thought
from holdfast.turns.primitives.times import Moment, moment
from holdfast.turns.primitives.tool_call import AnyResults, Results, ToolCall
from holdfast.turns.primitives.trust import MODALITY_HAZARDS, TRUST_TIERS, ModalityHazard, TrustTier

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
