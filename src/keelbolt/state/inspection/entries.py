"""Pages of logs for display: each item with its seq and commit time."""

from __future__ import annotations

from typing import Any

from keelbolt.data.shown import LARGE_BYTES, plain, when
from keelbolt.errors import LogTrimmed
from keelbolt.kernel import Entry, LogPage, Scope
from keelbolt.state.codec import decode
from keelbolt.state.engine.writes import BURSTS
from keelbolt.state.events.streams import items_of

Items = dict[str, Any]


async def page_of(
    scope: Scope, log: str, stream: str, *, after: int | None = None, limit: int = 100, last: bool = False
) -> Items:
    """Return entries after this seq; without one, the first entries, or the ``last``.

    ``gap``: requested entries were trimmed; ``more``: there are further entries after these (before them, if the last
    were requested); ``next`` is the ``after`` of the next page. An entry that holds several items is returned whole, so
    a page may have more items than ``limit``.
    """
    gap = False
    backward = last and after is None
    try:
        page = await scope.read_log(log, stream, after=after, limit=limit, backward=backward)
    except LogTrimmed:
        gap, page = True, await scope.read_log(log, stream, limit=limit)
    entries = page.entries[::-1] if backward else page.entries
    return {
        "entries": [item for entry in entries for item in _items(log, entry)],
        "head": page.head,
        "floor": page.floor,
        "gap": gap,
        "more": _more(page, entries, backward=backward),
        "next": entries[-1].seq if entries else after or page.head,
    }


def _more(page: LogPage, entries: tuple[Entry, ...], *, backward: bool) -> bool:
    if not entries:
        return False
    return entries[0].seq > page.floor + 1 if backward else entries[-1].seq < page.head


def _items(log: str, entry: Entry) -> list[Items]:
    at, large = when(entry.at), len(entry.data) > LARGE_BYTES
    items = items_of(entry) if log in BURSTS else [decode(entry.data)]
    return [{"seq": entry.seq, "at": at, "data": plain(item, large=large)} for item in items]
