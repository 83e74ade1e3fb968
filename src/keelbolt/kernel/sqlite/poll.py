"""The safety poll: detects changes in the file whose notifications were lost."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from keelbolt.kernel.hints import Board, LogTopic, Topic
from keelbolt.kernel.sqlite.connection import SQL, Connect, SqliteConnection
from keelbolt.kernel.sqlite.readers import only
from keelbolt.kernel.sqlite.worker_locks import WorkerLocks

POLL_SECONDS = 0.25
REST = 50  # pause after a poll, as a multiple of its duration: at most 2 % of a core
FORGOTTEN = 1000  # logs that are still compared although they are no longer watched


class Poll:
    """Polls the file in its own thread with its own connection, and wakes the watches.

    While `PRAGMA data_version` stays the same, no process has committed, and nothing else is read. Otherwise one
    statement compares the heads of all watched logs, which a temporary table keeps, with those in the file. When a
    worker's process has died, the poll wakes the watches of all queues: the next claim ends the worker's lease.
    """

    def __init__(self, connect: Connect, path: str, board: Board, locks: WorkerLocks, also: Callable[[], None]) -> None:
        self._locks = locks
        self._connect = connect
        self._path = path
        self._board = board
        self._also = also
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keelbolt-poll")
        self._connection: SqliteConnection | None = None
        self._version = -1
        self._queues: dict[Topic, None] = {}
        self._compared = 0  # number of compared topics; 0: none yet, or after an error
        self._task = asyncio.get_running_loop().create_task(self._run(), name="keelbolt-poll")

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        board, took = self._board, 0.0
        while True:
            await asyncio.sleep(max(POLL_SECONDS, REST * took))
            self._also()
            if not len(board):
                continue
            began = time.perf_counter()
            again = self._compared > 2 * len(board) + FORGOTTEN or self._compared == 0
            fresh = board.fresh()
            try:
                topics = board.topics() if again else fresh
                board.wake(await loop.run_in_executor(self._thread, partial(self._look, topics, again=again)))
            except sqlite3.Error:
                self._compared = 0  # retried at the next poll, from the start
            took = time.perf_counter() - began

    def _look(self, topics: Sequence[Topic], *, again: bool) -> list[Topic]:
        """Add ``topics`` (with ``again``, replace all), and return all watched topics that changed."""
        if self._connection is None:
            self._connection = self._connect(self._path)
            self._connection.execute("PRAGMA temp_store = MEMORY")
        connection = self._connection
        changed: list[Topic] = []
        if again:
            connection.execute(SQL["watch_none"])
            connection.execute(SQL["forget_watched"])
            self._queues.clear()
            self._compared = 0
        for topic in topics:
            if isinstance(topic, LogTopic):
                connection.execute(SQL["watch_log"], topic)
            else:
                self._queues[topic] = None
        self._compared += len(topics)
        seen = only(connection.execute("PRAGMA data_version").fetchone())
        if seen != self._version:
            rows = connection.execute(SQL["changed_heads"]).fetchall()
            connection.executemany(SQL["set_watched"], rows)
            changed += [LogTopic(*row[1:]) for row in rows]
        if seen != self._version or (self._queues and self._locks.dead().workers):
            changed += self._queues
        self._version = seen
        return changed

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await asyncio.to_thread(self._thread.shutdown)
        if self._connection is not None:
            self._connection.close()
