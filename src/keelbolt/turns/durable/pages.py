"""Every record that a query finds, however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator

from keelbolt.storage import Kernel, Query, Record

PAGE = 100


async def each_of(kernel: Kernel, partition: str, query: Query) -> AsyncIterator[Record]:
    """One after another, read page by page."""
    cursor = None
    while True:
        page = await kernel.find(partition, query, limit=PAGE, cursor=cursor)
        for record in page.records:
            yield record
        cursor = page.cursor
        if cursor is None:
            return
