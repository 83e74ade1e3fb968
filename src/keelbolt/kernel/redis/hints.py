"""Notifications between processes: digests of topics over pub/sub, one message per batch of commits.

A message may be lost, and a writer may die before it sends one. So while there are subscriptions, each process asks the
server every second whether anything was written, and if so, reads the heads of all watched logs at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from keelbolt.errors import KeelboltError
from keelbolt.kernel.hints import Board, LogTopic, Topic, topic_digest
from keelbolt.kernel.redis.connection import Wire

DIGEST_BYTES = 8
SENDER_BYTES = 8
GATHER_SECONDS = 0.004
FEW_TOPICS = 4
MOST_PAUSES = 8
POLL_SECONDS = 1.0
HEADS_AT_ONCE = 500  # logs per call, because a call blocks the server


class RedisPublisher:
    """Publishes topics to other processes: at once after a quiet period, otherwise batched; less often under load.

    A notification is sent with the batch that it is about. Topics that come too soon after the last message are sent
    later in a separate message.
    """

    def __init__(self, channel: bytes, publish: Callable[[list[bytes]], None]) -> None:
        self.sender = os.urandom(SENDER_BYTES)  # to ignore messages of this process
        self._channel = channel
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._gathered: dict[Topic, None] = {}
        self._silent_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def due(self) -> bool:
        return self._timer is None and self._loop.time() >= self._silent_until

    def words(self, topics: Collection[Topic]) -> list[bytes]:
        """Return the call that publishes these topics. More topics wake more readers and cause a longer pause."""
        pause = GATHER_SECONDS * min(max(len(topics) / FEW_TOPICS, 1), MOST_PAUSES)
        self._silent_until = self._loop.time() + pause
        return [b"PUBLISH", self._channel, self.sender + b"".join(map(topic_digest, topics))]

    def tell(self, topics: Iterable[Topic]) -> None:
        """Publish topics of changes that are already committed."""
        self._gathered.update(dict.fromkeys(topics))
        if self._timer is None:
            self._timer = self._loop.call_later(max(self._silent_until - self._loop.time(), 0), self._flush)

    def _flush(self) -> None:
        self._timer = None
        topics, self._gathered = self._gathered, {}
        self._publish(self.words(topics))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._flush()


class RedisHints:
    """Receives notifications, and polls.

    ``sender`` is the id of this process, ``connect`` opens a connection to listen on, ``changes`` returns a different
    value after any write, ``heads`` returns the heads of streams of one partition.
    """

    def __init__(
        self,
        board: Board,
        channel: bytes,
        sender: bytes,
        *,
        connect: Callable[[], Awaitable[Wire]],
        changes: Callable[[], Awaitable[object]],
        heads: Callable[[str, Sequence[LogTopic]], Awaitable[Sequence[int]]],
    ) -> None:
        self._board = board
        self._channel = channel
        self._sender = sender
        self._connect = connect
        self._changes = changes
        self._read_heads = heads
        self._heads: dict[LogTopic, int] = {}
        self.listening = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._listen(), name="keelbolt-redis-hints"),
            loop.create_task(self._poll(), name="keelbolt-redis-poll"),
        ]

    async def _listen(self) -> None:
        wire: Wire | None = None
        while True:
            try:
                wire = await self._connect()
                await wire.send(b"SUBSCRIBE", self._channel)
                while True:
                    message = await wire.hear()
                    if message[0] == b"subscribe":
                        self.listening.set()
                        self._board.wake_all()  # earlier messages were missed
                    elif message[0] == b"message" and not message[2].startswith(self._sender):
                        self._hear(message[2][len(self._sender) :])
            except KeelboltError:
                await asyncio.sleep(POLL_SECONDS / 2)
            finally:
                if wire is not None:
                    await wire.close()

    def _hear(self, data: bytes) -> None:
        digests = [data[start : start + DIGEST_BYTES] for start in range(0, len(data), DIGEST_BYTES)]
        self._board.wake_digests(digests)

    async def _poll(self) -> None:
        seen: object = None
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if not len(self._board):
                continue
            with contextlib.suppress(KeelboltError):  # retried at the next poll
                now = await self._changes()
                if now != seen:
                    self._board.wake(await self._changed())
                seen = now

    async def _changed(self) -> list[Topic]:
        """Return the watched queues, and the watched logs whose heads changed since the last call."""
        changed: list[Topic] = []
        partitions: dict[str, list[LogTopic]] = {}
        for topic in self._board.topics():
            if isinstance(topic, LogTopic):
                partitions.setdefault(topic.partition, []).append(topic)
            else:
                changed.append(topic)
        heads: dict[LogTopic, int] = {}
        for partition, logs in partitions.items():
            for start in range(0, len(logs), HEADS_AT_ONCE):
                some = logs[start : start + HEADS_AT_ONCE]
                heads.update(zip(some, await self._read_heads(partition, some), strict=True))
        changed += [topic for topic, head in heads.items() if head != self._heads.get(topic)]
        self._heads = heads
        return changed

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
