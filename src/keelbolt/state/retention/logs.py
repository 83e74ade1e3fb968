"""Trims logs by age and number. The search reads few entries, regardless of the log's length."""

from __future__ import annotations

from keelbolt.kernel import Scope, Trim
from keelbolt.state.events.streams import items_of

LOG_PAGE = 500


async def trim(
    scope: Scope, log: str, stream: str, *, before: int | None, keep: int | None, bundles: bool, dry: bool
) -> int:
    """Trim entries from before this time (microseconds since 1970), and all but the last ``keep`` items.

    ``bundles``: an entry may hold several items. Return the number of trimmed entries; ``dry`` only counts.
    """
    state = await scope.log_state(log, stream)
    through = state.floor
    if before is not None and state.head > state.floor:
        through = await _last_before(scope, log, stream, before, state.floor, state.head)
    if keep is not None and state.head - through > 0:
        last = await _before_last(scope, log, stream, keep) if bundles else state.head - keep
        through = max(through, last)
    if through <= state.floor:
        return 0
    if not dry:
        await scope.commit(Trim(log, stream, through))
    return through - state.floor


async def _last_before(scope: Scope, log: str, stream: str, moment: int, floor: int, head: int) -> int:
    """Return the seq of the last entry before this time, or the floor."""
    oldest, newest = floor, head
    while oldest < newest:
        middle = (oldest + newest + 1) // 2
        page = await scope.read_log(log, stream, before=middle + 1, limit=1, max_bytes=1, backward=True)
        if page.entries and page.entries[0].at < moment:
            oldest = middle
        else:
            newest = middle - 1
    return oldest


async def _before_last(scope: Scope, log: str, stream: str, keep: int) -> int:
    """Return the seq before the entry that holds the first of the last ``keep`` items."""
    found, before = 0, None
    while True:
        page = await scope.read_log(log, stream, before=before, limit=LOG_PAGE, backward=True)
        for entry in page.entries:
            if found >= keep:
                return entry.seq
            found += len(items_of(entry))
        if not page.entries or page.entries[-1].seq <= page.floor + 1:
            return page.floor
        before = page.entries[-1].seq
