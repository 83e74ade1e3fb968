"""Converts stored values of the state store to plain JSON, and stored names to ids."""

from __future__ import annotations

from typing import Any

from keelbolt.data.display import LARGE_BYTES, plain, when
from keelbolt.kernel import Entry
from keelbolt.state.codec import decode
from keelbolt.state.engine.writes import BURSTS
from keelbolt.state.events.streams import items_of
from keelbolt.state.names import name, unnamed


def shown(data: bytes, *, large_bytes: int = LARGE_BYTES) -> Any:
    """Decode a value of the store's codec to readable JSON; truncate it if it is large."""
    return plain(decode(data), large=len(data) > large_bytes)


def shown_items(log: str, entry: Entry) -> list[dict[str, Any]]:
    """Return the items of a log entry, each with its seq and commit time."""
    items = items_of(entry) if log in BURSTS else [decode(entry.data)]
    large = len(entry.data) > LARGE_BYTES
    return [{"seq": entry.seq, "at": when(entry.at), "data": plain(item, large=large)} for item in items]


def reference(text: str) -> str:
    """Return the stored name for a stored name or an id."""
    known = unnamed(text)
    return text if known is None or name(known) == text else name(text)


def original(short: str) -> str:
    """Return the id of a stored name; if the id is too long to be stored, the name."""
    known = unnamed(short)
    return short if known is None else known
