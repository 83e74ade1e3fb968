"""Goes through all partitions, as only those who run the storage do."""

from __future__ import annotations

from collections.abc import AsyncIterator

from keelbolt.tasks.store import TaskStore


async def all_partitions(store: TaskStore, *, after: str = "") -> AsyncIterator[str]:
    """The names of all partitions, in order."""
    while names := await store.kernel.partitions(after=after):
        for name in names:
            yield name
        after = names[-1]
