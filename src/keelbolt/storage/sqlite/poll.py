"""The safety poll: whatever hint was lost, a change in the file is seen here."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from keelbolt.storage.hints import Board, LogTopic, QueueTopic, Topic
from keelbolt.storage.sqlite.connection import SQL, Connect, Connection
from keelbolt.storage.sqlite.readers import only
from keelbolt.storage.sqlite.worker_locks import WorkerLocks

POLL_SECONDS = 0.25


class Poll:
    """Looks at the file now and then, in a thread and with a connection of its own, and wakes the watches.

    When the process of a worker died, it wakes the watches of all queues: the next claim ends the worker's lease.
    """

    def __init__(self, connect: Connect, path: str, board: Board, locks: WorkerLocks, also: Callable[[], None]) -> None:
        self._locks = locks
        self._connect = connect
        self._path = path
        self._board = board
        self._also = also
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keelbolt-poll")
        self._connection: Connection | None = None
        self._version = -1
        self._heads: dict[Topic, int] = {}
        self._task = asyncio.get_running_loop().create_task(self._run(), name="keelbolt-poll")

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self._also()
            topics = self._board.topics()
            if topics:
                with contextlib.suppress(sqlite3.Error):  # the next look may be luckier
                    self._board.wake(await loop.run_in_executor(self._thread, self._look, topics))
            else:
                self._heads.clear()

    def _look(self, topics: Sequence[Topic]) -> list[Topic]:
        """What has changed among these topics since the last look."""
        if self._connection is None:
            self._connection = self._connect(self._path)
        heads = self._heads
        new = [topic for topic in topics if topic not in heads]
        seen = only(self._connection.execute("PRAGMA data_version").fetchone())
        looked_at = topics if seen != self._version else new
        self._version = seen
        changed: list[Topic] = []
        for topic in looked_at:
            head = -1  # a queue has none: look into it
            if isinstance(topic, LogTopic):
                head = only(self._connection.execute(SQL["get_head"], topic).fetchone())
            if head == -1 or heads.get(topic, 0) != head:
                changed.append(topic)
            heads[topic] = head
        queues = [topic for topic in topics if isinstance(topic, QueueTopic)]
        if queues and self._locks.dead().workers:
            changed += queues
        for gone in set(heads) - set(topics):
            del heads[gone]
        return changed

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await asyncio.to_thread(self._thread.shutdown)
        if self._connection is not None:
            self._connection.close()
