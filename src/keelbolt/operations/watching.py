"""Watches the tasks of a scope: its index is read once for all readers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from keelbolt.errors import KeelboltError
from keelbolt.kernel import Query, Scope
from keelbolt.leases import cancelled
from keelbolt.tasks.families import TASKS
from keelbolt.tasks.record import TaskRecord
from keelbolt.tasks.stored_tasks import StoredTasks

logger = logging.getLogger("keelbolt.server")

WATCH_SECONDS = 0.5  # poll interval of the index
OVERLAP_MICROSECONDS = 5_000_000  # changes that become visible this much after their timestamp are still reported
AHEAD_MICROSECONDS = 60_000_000  # changes of a process whose clock is further ahead are reported later
BEHIND = 10_000  # a reader with more pending changes is disconnected


@dataclass(slots=True, eq=False)
class ChangeReader:
    """The pending changes of one reader. ``lost``: it was too slow, and missed a change."""

    news: asyncio.Queue[TaskRecord] = field(default_factory=lambda: asyncio.Queue(BEHIND))
    lost: bool = False

    def tell(self, record: TaskRecord) -> None:
        if self.news.full():
            self.lost = True
        if not self.lost:
            self.news.put_nowait(record)

    async def next(self, seconds: float) -> TaskRecord | None:
        """Return the next change; None: there was none for this many seconds."""
        try:
            async with asyncio.timeout(seconds):
                return await self.news.get()
        except TimeoutError:
            return None


class TaskWatcher:
    """All readers of this process."""

    def __init__(self, store: StoredTasks) -> None:
        self._store = store
        self._readers: dict[Scope, set[ChangeReader]] = {}
        self._looking: dict[Scope, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def reader(self, scope: Scope) -> AsyncIterator[ChangeReader]:
        """Return a reader that gets each change from now on."""
        reader = ChangeReader()
        self._readers.setdefault(scope, set()).add(reader)
        if scope not in self._looking:
            self._looking[scope] = asyncio.create_task(self._look(scope), name=f"watching {scope.partition}")
        try:
            yield reader
        finally:
            self._readers[scope].discard(reader)
            if not self._readers[scope]:
                del self._readers[scope]
                await cancelled(self._looking.pop(scope))

    async def _look(self, scope: Scope) -> None:
        start = newest = self._store.clock.wall() - 1_000_000
        query = self._since(start)
        told: set[tuple[str, int]] = set()
        cursor: str | None = None
        while True:
            try:
                page = await scope.find(query, limit=100, cursor=cursor)
            except KeelboltError as error:
                logger.warning("reading changes of tasks failed and is retried: %s", error)
                await asyncio.sleep(WATCH_SECONDS)
                continue
            for record in map(TaskRecord.of, page.records):
                newest = max(newest, record.updated)
                if (record.task_id, record.updated) not in told:
                    told.add((record.task_id, record.updated))
                    for reader in self._readers.get(scope, ()):
                        reader.tell(record)
            cursor = page.cursor
            if cursor is None:  # a commit may become visible after one with a later timestamp, of any process
                await asyncio.sleep(WATCH_SECONDS)
                wall = self._store.clock.wall()
                if wall < start:  # the wall clock was set back
                    start = wall - OVERLAP_MICROSECONDS
                newest = min(newest, wall)
                since = max(start, newest - OVERLAP_MICROSECONDS)
                told = {key for key in told if key[1] >= since}
                query = self._since(since)

    def _since(self, since: int) -> Query:
        """Return the query of changes since then. Records from before a clock was set back are not read every time."""
        return Query(TASKS, order="updated", since=since, until=self._store.clock.wall() + AHEAD_MICROSECONDS)
