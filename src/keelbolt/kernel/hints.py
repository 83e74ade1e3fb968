"""Notifications wake the readers of a log or a queue. If one is lost, the engine's safety poll wakes them instead.

Each kernel has one safety poll, so readers need no polls of their own: a thousand idle readers cost nothing.
A process notifies others of its commits by datagrams (`sqlite/hints.py`), NOTIFY (`postgres/hints.py`) or publish and
subscribe (`redis/hints.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import blake2b
from types import TracebackType
from typing import NamedTuple, Self

from keelbolt.kernel.keys import encode


class LogTopic(NamedTuple):
    """Something was appended to this stream, or the stream was dropped."""

    partition: str
    log: str
    stream: str


class QueueTopic(NamedTuple):
    """Work became ready in this queue."""

    queue: str


Topic = LogTopic | QueueTopic

log_topic = partial(tuple.__new__, LogTopic)
"""Make a LogTopic from a stream's key, without the cost of LogTopic() in Python."""


def topic_digest(topic: Topic) -> bytes:
    """Return the eight bytes that identify a topic in notifications between processes."""
    return blake2b(encode(topic), digest_size=8).digest()


class Watch:
    """Waits for one topic. Enter it *before* reading, so that no commit between read and wait is missed.

    with kernel.watch(topic) as watch:
        while not (page := await kernel.read_log(...)).entries:
            await watch.wait(1.0)
    """

    def __init__(self, board: Board, topic: Topic, then: Callable[[], None] | None = None) -> None:
        self.topic = topic
        self._board = board
        self._woken = False
        self._event: asyncio.Event | None = None
        self._then = then

    def wake(self) -> None:
        self._woken = True
        if self._event is not None:
            self._event.set()
        if self._then is not None:
            self._then()

    async def wait(self, seconds: float | None = None) -> bool:
        """Return True when woken since the last wait, False after the time-out."""
        if not self._woken:
            self._event = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._event.wait()
            self._event = None
        woken, self._woken = self._woken, False
        return woken

    def __enter__(self) -> Self:
        self._board.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._board.remove(self)
        self._then = None  # its owner often holds the watch: no cycle is left for the garbage collector


class Board:
    """The watches of one kernel, by topic. Belongs to the kernel's event loop; engines call `wake` there."""

    def __init__(self) -> None:
        self._watches: dict[Topic, set[Watch]] = {}
        self._by_digest: dict[bytes, tuple[Topic]] = {}
        self._fresh: dict[Topic, None] = {}

    def add(self, watch: Watch) -> None:
        watches = self._watches.get(watch.topic)
        if watches is None:
            self._watches[watch.topic] = {watch}
            self._by_digest[topic_digest(watch.topic)] = (watch.topic,)
            self._fresh[watch.topic] = None
        else:
            watches.add(watch)

    def remove(self, watch: Watch) -> None:
        watches = self._watches.get(watch.topic)
        if watches is None:
            return
        watches.discard(watch)
        if not watches:
            del self._watches[watch.topic]
            self._by_digest.pop(topic_digest(watch.topic), None)
            self._fresh.pop(watch.topic, None)

    def __len__(self) -> int:
        return len(self._watches)

    def topics(self) -> tuple[Topic, ...]:
        return tuple(self._watches)

    def fresh(self) -> tuple[Topic, ...]:
        """Return the topics that were added since the last call. For the engine's safety poll."""
        fresh, self._fresh = tuple(self._fresh), {}
        return fresh

    def wake(self, topics: Iterable[Topic]) -> None:
        if self._watches:
            for topic in topics:
                for watch in tuple(self._watches.get(topic, ())):
                    watch.wake()

    def wake_digests(self, digests: Iterable[bytes]) -> None:
        """Wake the watches of topics that another process named by their digests."""
        if self._watches:
            for digest in digests:
                self.wake(self._by_digest.get(digest, ()))

    def wake_all(self) -> None:
        self.wake(self.topics())
