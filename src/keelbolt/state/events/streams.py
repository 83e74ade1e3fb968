"""Reads logs: a whole stream, its last N entries, or the first N after an entry."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from keelbolt.errors import LogTrimmed
from keelbolt.kernel import Entry, Scope
from keelbolt.state.codec import canonical, decode
from keelbolt.state.engine.writes import MANY

PAGE = 2000
PAGE_BYTES = 8 * 1024 * 1024

Keep = Callable[[Entry], bool]


async def read_all(scope: Scope, log: str, stream: str) -> list[Entry]:
    """Return all entries in order."""
    entries: list[Entry] = []
    after: int | None = None
    while True:
        try:
            page = await scope.read_log(log, stream, after=after, limit=PAGE, max_bytes=PAGE_BYTES)
        except LogTrimmed:  # a sweep trimmed entries that were not read yet: start again at the new beginning
            entries, after = [], None
            continue
        entries.extend(page.entries)
        if not page.entries or page.entries[-1].seq >= page.head:
            return entries
        after = page.entries[-1].seq


async def read_items(scope: Scope, log: str, stream: str) -> list[Any]:
    """Return all items, decoded and in order, of a log whose entries hold one item or many."""
    items: list[Any] = []
    for entry in await read_all(scope, log, stream):
        items += items_of(entry)
    return items


def items_of(entry: Entry) -> list[Any]:
    """Return the items of such an entry."""
    found = decode(entry.data)
    return found if entry.kind == MANY else [found]


def once(items: Iterable[dict[str, Any]], *fields: str, seen: set[bytes] | None = None) -> list[dict[str, Any]]:
    """Return the items without repeats: items that are equal in these fields, or in all fields if none is given.

    ``seen`` carries the known items from call to call.
    """
    seen = set() if seen is None else seen
    kept = []
    for item in items:
        mark = canonical([item.get(field) for field in fields] if fields else item)
        if mark not in seen:
            seen.add(mark)
            kept.append(item)
    return kept


async def read_some(
    scope: Scope, log: str, stream: str, *, since: str | None, limit: int, keep: Keep | None = None
) -> list[Entry]:
    """Return the first ``limit`` entries after the one with this dedupe key; without a key, or with an unknown one, the
    last ``limit``. Only entries that ``keep`` accepts count.
    """
    if limit <= 0:
        return []
    after = await scope.seq_of(log, stream, since) if since is not None else None
    if after is not None:
        with contextlib.suppress(LogTrimmed):  # the entries after it were trimmed meanwhile: treat the key as unknown
            return await _forward(scope, log, stream, after, limit, keep)
    return await _backward(scope, log, stream, limit, keep)


async def _forward(scope: Scope, log: str, stream: str, after: int, limit: int, keep: Keep | None) -> list[Entry]:
    found: list[Entry] = []
    while True:
        page = await scope.read_log(log, stream, after=after, limit=_size(limit, found, keep), max_bytes=PAGE_BYTES)
        found.extend(page.entries if keep is None else filter(keep, page.entries))
        if not page.entries or page.entries[-1].seq >= page.head or len(found) >= limit:
            return found[:limit]
        after = page.entries[-1].seq


async def _backward(scope: Scope, log: str, stream: str, limit: int, keep: Keep | None) -> list[Entry]:
    found: list[Entry] = []
    before: int | None = None
    while True:
        page = await scope.read_log(
            log, stream, before=before, limit=_size(limit, found, keep), max_bytes=PAGE_BYTES, backward=True
        )
        found.extend(page.entries if keep is None else filter(keep, page.entries))
        if not page.entries or page.entries[-1].seq <= page.floor + 1 or len(found) >= limit:
            return found[:limit][::-1]
        before = page.entries[-1].seq


def _size(limit: int, found: list[Entry], keep: Keep | None) -> int:
    return min(PAGE, limit - len(found)) if keep is None else PAGE
