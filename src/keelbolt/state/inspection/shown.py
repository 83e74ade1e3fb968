"""Stored values of the state store as plain JSON, and the ids behind stored names."""

from __future__ import annotations

from typing import Any

from keelbolt.data.shown import LARGE_BYTES, plain
from keelbolt.state.codec import decode
from keelbolt.state.names import name, unnamed


def shown(data: bytes, *, large_bytes: int = LARGE_BYTES) -> Any:
    """What the store's codec wrote, as JSON that says as much as JSON can; cut where it is large."""
    return plain(decode(data), large=len(data) > large_bytes)


def reference(text: str) -> str:
    """The name under which something is stored, from that name or from the id itself."""
    known = unnamed(text)
    return text if known is None or name(known) == text else name(text)


def original(short: str) -> str:
    """The id of a name; of one that is too long for a name, the name."""
    known = unnamed(short)
    return short if known is None else known
