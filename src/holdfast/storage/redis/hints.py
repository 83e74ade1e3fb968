"""Hints between processes: digests of topics over pub/sub, one message per batch of commits.

A message may be lost, and a writer may die before it sends one; so while somebody waits, the server is asked every
second whether anything was written at all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable

from holdfast.errors import HoldfastError
from holdfast.storage.hints import Board, Topic, topic_digest
from holdfast.storage.redis.connection import Wire

DIGEST_BYTES = 8
SENDER_BYTES = 8
POLL_SECONDS = 1.0


class Hints:
    def __init__(
        self,
        board: Board,
        channel: bytes,
        *,
        connect: Callable[[], Awaitable[Wire]],
        publish: Callable[[bytes], None],
        changes: Callable[[], Awaitable[object]],
    ) -> None:
        self._board = board
        self._channel = channel
        self._connect = connect
        self._publish = publish
        self._changes = changes
        self._sender = os.urandom(SENDER_BYTES)
        self._pending: dict[Topic, None] = {}
        loop = asyncio.get_running_loop()
        self._loop = loop
        self.listening = asyncio.Event()
        self._tasks = [
            loop.create_task(self._listen(), name="holdfast-redis-hints"),
            loop.create_task(self._poll(), name="holdfast-redis-poll"),
        ]

    def tell(self, topics: Iterable[Topic]) -> None:
        """Wake whoever waits here, and soon whoever waits elsewhere."""
        if not self._pending:
            self._loop.call_soon(self._flush)
        for topic in topics:
            self._pending[topic] = None

    def _flush(self) -> None:
        topics = tuple(self._pending)
        self._pending.clear()
        self._board.wake(topics)
        self._publish(self._sender + b"".join(map(topic_digest, topics)))

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
                        self._board.wake_all()  # what was said while nobody listened
                    elif message[0] == b"message" and message[2][:SENDER_BYTES] != self._sender:
                        self._hear(message[2][SENDER_BYTES:])
            except HoldfastError:
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
            if not self._board.topics():
                continue
            try:
                now = await self._changes()
            except HoldfastError:
                continue  # the next look may be luckier
            if now != seen:
                self._board.wake_all()
            seen = now

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
