"""Stored values as people and pages are shown them: plain JSON, cut where it is long."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

from keelbolt.protocol.types import timestamp
from keelbolt.state.codec import decode
from keelbolt.state.names import name, unnamed

LARGE_BYTES = 64 * 1024  # what is stored in more than this is cut
MAX_CHARS = 2000
MAX_ITEMS = 50
MAX_DEPTH = 8


def shown(data: bytes, *, large_bytes: int = LARGE_BYTES) -> Any:
    """What the store's codec wrote, as JSON that says as much as JSON can; cut where it is large."""
    return plain(decode(data), large=len(data) > large_bytes)


def plain(value: Any, *, large: bool = False) -> Any:
    """A value as JSON; what is long in a ``large`` one is cut."""
    return _cut(_plain(value), 0) if large else _plain(value)


def when(microseconds: Any) -> str | None:
    """A moment in microseconds since 1970; None where there is none."""
    return timestamp(microseconds) if isinstance(microseconds, int) else None


def reference(text: str) -> str:
    """The name under which something is stored, from that name or from the id itself."""
    known = unnamed(text)
    return text if known is None or name(known) == text else name(text)


def original(short: str) -> str:
    """The id of a name; of one that is too long for a name, the name."""
    known = unnamed(short)
    return short if known is None else known


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return value if value.bit_length() <= 10_000 else hex(value)
    if isinstance(value, bytes | bytearray):
        return f"{len(value)} bytes"
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)


def _cut(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_CHARS else f"{value[:MAX_CHARS]}… ({len(value)} characters)"
    if not isinstance(value, dict | list):
        return value
    if depth >= MAX_DEPTH:
        return f"… ({len(value)} items)"
    more = len(value) - MAX_ITEMS
    if isinstance(value, list):
        return [_cut(item, depth + 1) for item in value[:MAX_ITEMS]] + ([f"… ({more} more)"] if more > 0 else [])
    found = {key[:MAX_CHARS]: _cut(item, depth + 1) for key, item in list(value.items())[:MAX_ITEMS]}
    return {**found, "…": f"{more} more"} if more > 0 else found
