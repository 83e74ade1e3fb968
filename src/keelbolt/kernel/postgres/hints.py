"""Notifications between processes by NOTIFY, batched for ten milliseconds and sent after the writes; the safety poll.

NOTIFY inside a writing transaction serialises all commits and costs four fifths of the throughput.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from keelbolt.errors import StorageError
from keelbolt.kernel.hints import Board, LogTopic, Topic, topic_digest
from keelbolt.kernel.postgres.connection import CONNECT_SECONDS, ERRORS, Connection, close_quietly, short
from keelbolt.kernel.postgres.readers import PostgresReaders

logger = logging.getLogger("keelbolt.kernel")

GATHER_SECONDS = 0.01
POLL_SECONDS = 1.0
POOLED_POLL_SECONDS = 0.25  # LISTEN does not work behind a pooler; only the poll does
UNKNOWN = -1  # head of a newly watched log: it may have changed before the first poll
PAYLOAD_TOPICS = 400  # 16 characters each; a payload has 8,000 bytes at most


class PostgresHints:
    def __init__(
        self,
        *,
        connect: Callable[[], Awaitable[Connection]],
        readers: PostgresReaders,
        schema: str,
        board: Board,
        pooled: bool,
    ) -> None:
        self._connect = connect
        self._readers = readers
        self._channel = f"keelbolt_{schema}"[:63]
        self._board = board
        self._pooled = pooled
        self._listener: Connection | None = None
        self._gathered: dict[Topic, None] = {}
        self._something = asyncio.Event()
        self._heads: dict[LogTopic, int] = {}
        self._snapshot = ""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._poll(), name="keelbolt-poll")]
        if not pooled:
            self._tasks.append(loop.create_task(self._send(), name="keelbolt-hints"))

    def hint(self, topics: Sequence[Topic]) -> None:
        """Notify subscriptions of a commit: those of this process now, those of other processes soon."""
        self._board.wake(topics)
        if not self._pooled:
            self._gathered.update(dict.fromkeys(topics))
            self._something.set()

    async def _send(self) -> None:
        while True:
            await self._something.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._something.clear()
            topics, self._gathered = tuple(self._gathered), {}
            for start in range(0, len(topics), PAYLOAD_TOPICS):
                payload = "".join(topic_digest(topic).hex() for topic in topics[start : start + PAYLOAD_TOPICS])
                with contextlib.suppress(*ERRORS):  # notifications may be lost
                    await self._readers.pool.execute("SELECT pg_notify($1, $2)", self._channel, payload)

    async def _poll(self) -> None:
        while True:
            if not self._pooled:
                await self._listen()
            await asyncio.sleep(POOLED_POLL_SECONDS if self._pooled else POLL_SECONDS)
            if len(self._board):
                with contextlib.suppress(StorageError):
                    self._board.wake(await self._look())

    async def _listen(self) -> None:
        """Keep one listening connection; replace it when it breaks."""
        if self._listener is not None and not self._listener.is_closed():
            return
        connection = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await self._connect()
                await connection.add_listener(self._channel, self._hear)
        except ERRORS:
            await close_quietly(connection)
        except BaseException:  # cancelled by close()
            if connection is not None:
                connection.terminate()
            raise
        else:
            self._listener = connection
            self._board.wake_all()  # notifications in the meantime were lost

    def _hear(self, _connection: Connection, _pid: int, _channel: str, payload: str) -> None:
        raw = bytes.fromhex(payload)
        self._board.wake_digests([raw[start : start + 8] for start in range(0, len(raw), 8)])

    async def _look(self) -> list[Topic]:
        """Return the topics that may have changed since the last poll.

        While the server's snapshot is the same, no transaction has committed, and nothing else is read. Otherwise one
        statement compares the heads of all watched logs with those of the last poll. A queue has no head, so queues are
        always returned.
        """
        (snapshot,) = await self._readers.row("snapshot")
        if snapshot == self._snapshot:
            return []
        topics = self._board.topics()
        logs = [topic for topic in topics if isinstance(topic, LogTopic)]
        changed: list[Topic] = [topic for topic in topics if not isinstance(topic, LogTopic)]
        heads = {topic: self._heads.get(topic, UNKNOWN) for topic in logs}
        if logs:
            known = [(topic.partition, topic.log, short(topic.stream), heads[topic]) for topic in logs]
            for place, head in await self._readers.rows("changed_heads", *zip(*known, strict=True)):
                heads[logs[place - 1]] = head
                changed.append(logs[place - 1])
        self._heads, self._snapshot = heads, snapshot
        return changed

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await close_quietly(self._listener)
