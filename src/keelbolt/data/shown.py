"""Converts stored values for display: plain JSON, truncated where it is long."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

from keelbolt.protocol.types import timestamp

LARGE_BYTES = 64 * 1024  # larger stored values are truncated
MAX_CHARS = 2000
MAX_ITEMS = 50
MAX_DEPTH = 8


def plain(value: Any, *, large: bool = False) -> Any:
    """Return the value as JSON data. If ``large``, truncate its long parts."""
    return _cut(_plain(value), 0) if large else _plain(value)


def plain_body(body: bytes) -> Any:
    """Return the value of a JSON body; for any other body, its size."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {"bytes": len(body)}
    return plain(value, large=len(body) > LARGE_BYTES)


def when(microseconds: Any) -> str | None:
    """Return the time (microseconds since 1970) as text, or None if it is not set."""
    return timestamp(microseconds) if isinstance(microseconds, int) else None


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
