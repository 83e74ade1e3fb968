"""Stored data for display: pages of a query or a log, and values as plain JSON, truncated where they are long."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from typing import Any

from keelbolt.errors import LogTrimmed
from keelbolt.kernel import Entry, Query, Record, Scope
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


# ---------------------------------------------------------------------------------------------------------------- pages


SOME = 50  # items of each list that is shown with its owner


async def first_of(
    scope: Scope, query: Query, show: Callable[[Record], Any], limit: int = SOME
) -> tuple[list[Any], bool]:
    """Return the first records of a query, as ``show`` returns them, and whether there are more."""
    found = (await scope.find(query, limit=limit + 1)).records
    return [show(record) for record in found[:limit]], len(found) > limit


async def log_page(
    scope: Scope,
    log: str,
    stream: str,
    show: Callable[[str, Entry], Iterable[Any]],
    *,
    after: int | None = None,
    limit: int = 100,
    last: bool = False,
) -> dict[str, Any]:
    """Return the entries after this seq; without one, the first entries, or the ``last``. ``show`` returns their items.

    ``head`` and ``floor`` are those of the log. ``gap``: the requested entries are trimmed. ``more``: there are further
    entries after these (before them, if the last were requested). ``next`` is the ``after`` of the next page. An entry
    with several items is returned whole, so a page may have more items than ``limit``.
    """
    gap, backward = False, last and after is None
    try:
        page = await scope.read_log(log, stream, after=after, limit=limit, backward=backward)
    except LogTrimmed:
        gap, page = True, await scope.read_log(log, stream, limit=limit)
    entries = page.entries[::-1] if backward else page.entries
    more = False
    if entries:
        more = entries[0].seq > page.floor + 1 if backward else entries[-1].seq < page.head
    return {
        "entries": [item for entry in entries for item in show(log, entry)],
        "head": page.head,
        "floor": page.floor,
        "gap": gap,
        "more": more,
        "next": entries[-1].seq if entries else after or page.head,
    }
