"""Hints wake the readers of a log or a queue. One may be lost: each engine's safety poll then wakes them instead.

The safety poll is one per kernel, so readers need no polls of their own: a thousand idle readers cost nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import blake2b
from types import TracebackType
from typing import NamedTuple, Self

from keelbolt.storage.keys import encode


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
"""The topic of a stream's key, without the cost of LogTopic() in Python."""


def topic_digest(topic: Topic) -> bytes:
    """How processes name a topic to each other: eight bytes."""
    return blake2b(encode(topic), digest_size=8).digest()


class Watch:
    """Waits for one topic. Open it *before* reading, so that nothing falls between the read and the wait.

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
        """True when woken since the last wait, False when the time is over."""
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


class Board:
    """The watches of one kernel, by topic. Lives in its event loop; engines call `wake` there."""

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
        """The topics that were added since the last call of this. For the engine's safety poll."""
        fresh, self._fresh = tuple(self._fresh), {}
        return fresh

    def wake(self, topics: Iterable[Topic]) -> None:
        if self._watches:
            for topic in topics:
                for watch in tuple(self._watches.get(topic, ())):
                    watch.wake()

    def wake_digests(self, digests: Iterable[bytes]) -> None:
        """Wake by the digests of topics, as another process names them."""
        if self._watches:
            for digest in digests:
                self.wake(self._by_digest.get(digest, ()))

    def wake_all(self) -> None:
        self.wake(self.topics())
