"""Pages for display, the same for the data of every face: the first records of a query, and entries of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from keelbolt.errors import LogTrimmed
from keelbolt.kernel import Entry, Query, Record, Scope

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
