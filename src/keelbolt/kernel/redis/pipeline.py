"""Sends all queued calls in one round trip, in call order, and resolves calls left in doubt by a broken connection.

There is no timer: while one batch is on its way, the next one queues. A write carries its session and number, and the
server keeps its result until the session's next batch. So after a reconnect the call is sent again: the server returns
the stored result, or executes the call if it had not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from keelbolt.errors import CommitInDoubt, KeelboltError, StorageClosed, StorageUnavailable
from keelbolt.kernel.hints import Topic
from keelbolt.kernel.ids import new_id
from keelbolt.kernel.redis.connection import Reply, Wire
from keelbolt.kernel.redis.hints import RedisPublisher
from keelbolt.kernel.redis.replies import (
    Disconnected,
    failure_of,
    is_moved,
    is_replica,
    lacks_functions,
    passes,
    text_of,
)
from keelbolt.observability.metrics import Meter

logger = logging.getLogger("keelbolt.kernel")

BATCH_CALLS = 512
BATCH_BYTES = 8 * 1024 * 1024
FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5

MODE = 6  # index of the mode among the words of a write
_FIRST, _AGAIN, _PLAIN = b"f", b"a", b""


@dataclass(slots=True, eq=False)
class PendingCall:
    """A queued call.

    ``read`` converts the reply into the result, or raises. ``topics`` are notified afterwards. ``kept``: the result is
    returned only when the durability is assured. ``doubt``: the call may have been executed, but its reply is missing.
    """

    words: list[bytes]
    read: Callable[[Reply], Any]
    future: asyncio.Future[Any]
    until: float
    writes: bool
    size: int
    topics: Sequence[Topic] = ()
    kept: bool = False
    doubt: bool = False

    @property
    def key(self) -> bytes:
        """The key by which a cluster finds the server."""
        return self.words[3] if self.words[0] == b"FCALL" else self.words[1]


@dataclass(frozen=True, slots=True)
class DurabilityRequest:
    """The durability request after each batch of writes, and the test of its reply.

    ``again``: if the test fails, the request is repeated, because it may succeed soon.
    """

    words: tuple[bytes, ...]
    holds: Callable[[Reply], bool]
    again: bool = True

    @classmethod
    def counting(cls, *words: bytes, enough: tuple[int, ...]) -> DurabilityRequest:
        """Build an assurance from WAITAOF or WAIT, which return the number of confirmations."""

        def holds(reply: Reply) -> bool:
            found = reply if isinstance(reply, list) else [reply]
            return all(isinstance(have, int) and have >= want for have, want in zip(found, enough, strict=True))

        return cls(words, holds)


class RedisPipeline:
    """Calls to one server, in order.

    ``connect`` opens and prepares a connection; ``moved`` gets calls whose slot is on another server; ``announcer``
    publishes a batch's topics after its durability request.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Wire]],
        *,
        patience_seconds: float,
        assurance: DurabilityRequest | None = None,
        moved: Callable[[PendingCall], None] | None = None,
        announcer: RedisPublisher | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._connect = connect
        self._announcer = announcer
        self._patience = patience_seconds
        self._assurance = assurance
        self._moved = moved
        self._meter = meter or Meter()
        self._queue: list[PendingCall] = []
        self._taken = 0  # calls in total
        self._serving = 0  # calls of the current batch
        self._wake = asyncio.Event()
        self._served = asyncio.Event()  # set for a moment after each batch
        self._wire: Wire | None = None
        self._session = new_id().encode()
        self._number = 0
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name="keelbolt-redis-pipeline")

    # ---------------------------------------------------------------------------------------------------- calling

    def call(self, words: list[bytes], read: Callable[[Reply], Any], *, kept: bool = False) -> asyncio.Future[Any]:
        """Queue a call that is safe to repeat. ``kept``: it writes, and its result waits for durability."""
        return self._add(words, read, writes=False, kept=kept)

    def write(
        self,
        function: bytes,
        base: bytes,
        words: Sequence[bytes],
        read: Callable[[Reply], Any],
        topics: Sequence[Topic] = (),
    ) -> asyncio.Future[Any]:
        """Queue a call of a writing function; it is executed once."""
        self._number += 1
        head = [b"FCALL", function, b"1", base, self._session, b"%d" % self._number, _PLAIN]
        return self._add([*head, *words], read, writes=True, topics=topics)

    def _add(
        self,
        words: list[bytes],
        read: Callable[[Reply], Any],
        *,
        writes: bool,
        kept: bool = True,
        topics: Sequence[Topic] = (),
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        size = sum(map(len, words)) + 16 * len(words)
        self.take(PendingCall(words, read, future, time.monotonic() + self._patience, writes, size, topics, kept))
        return future

    def take(self, call: PendingCall) -> None:
        if self._closing:
            call.future.set_exception(StorageClosed())
            return
        self._queue.append(call)
        self._taken += 1
        self._wake.set()

    async def drained(self) -> None:
        """Wait until all earlier calls have their results; does not wait for later ones."""
        earlier = self._taken
        while self._taken - len(self._queue) - self._serving < earlier:
            await self._served.wait()

    async def close(self) -> None:
        await self.drained()
        self._closing = True
        self._wake.set()
        await self._task

    # ----------------------------------------------------------------------------------------------------- sending

    async def _run(self) -> None:
        while True:
            try:
                await self._wake.wait()
            except asyncio.CancelledError:  # the loop ends without close(): finish queued calls
                self._closing = True
            self._wake.clear()
            while self._queue:
                batch = self._next_batch()
                self._serving = len(batch)
                await self._serve(batch)
                self._serving = 0
                self._served.set()
                self._served.clear()
            if self._closing:
                if self._wire is not None:
                    await self._wire.close()
                return

    def _next_batch(self) -> list[PendingCall]:
        count = size = 0
        for call in self._queue:
            size += call.size
            if count and (size > BATCH_BYTES or count >= BATCH_CALLS):
                break
            count += 1
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch

    async def _serve(self, batch: list[PendingCall]) -> None:
        bases = set()
        for call in batch:
            if call.writes:
                base = call.words[3]
                call.words[MODE] = _AGAIN if call.doubt else _PLAIN if base in bases else _FIRST
                bases.add(base)
        pause, began, writes = FIRST_PAUSE_SECONDS, time.monotonic(), sum(call.writes for call in batch)
        while batch:
            try:
                left = await self._once(batch)
                if writes and not left:
                    self._meter.batch(writes, time.monotonic() - began)
            except Disconnected as error:
                self._wire = None
                left = self._still_patient(batch, error)
            except asyncio.CancelledError:  # the loop ends without close(): finish queued calls
                self._closing = True
                self._wire = None
                left = batch
            except KeelboltError as error:  # the server is reachable but not usable
                self._wire = None
                self._give_up(batch, StorageUnavailable(f"{error}. Nothing was written"))
                return
            for call in left:
                if call.writes:
                    call.words[MODE] = _AGAIN
            batch = left
            if batch:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                self._queue = self._still_patient(self._queue, Disconnected())

    async def _once(self, batch: list[PendingCall]) -> list[PendingCall]:
        """Send a batch and resolve its calls. Return the calls that must be sent again."""
        if self._wire is None:
            self._wire = await self._connect()
        words: list[Sequence[bytes]] = [call.words for call in batch]
        assured = self._assurance if any(call.kept for call in batch) else None
        if assured is not None:
            words.append(assured.words)
        topics = dict.fromkeys(topic for call in batch for topic in call.topics)
        announcer = self._announcer if topics else None
        announced = announcer is not None and announcer.due()
        if announcer is not None and announced:
            words.append(announcer.words(topics))
        try:
            replies = await self._wire.run(words, seconds=self._patience)
        except BaseException:
            for call in batch:
                call.doubt = True
            raise
        if announced:
            replies.pop()  # the poll covers a failed notification
        elif announcer is not None:
            announcer.tell(topics)
        if assured is not None:
            confirmation = replies.pop()
            for call, reply in zip(batch, replies, strict=True):
                call.doubt = call.doubt or not isinstance(reply, Exception)  # executed, if the connection breaks now
            if not await self._assured(self._wire, assured, confirmation):
                self._doubt(batch, replies)
                return []
        left = []
        for call, reply in zip(batch, replies, strict=True):
            if isinstance(reply, Exception):
                text = text_of(reply)
                if is_moved(text) and self._moved is not None:
                    self._moved(call)
                elif lacks_functions(text) or passes(text) or is_replica(text):
                    left.append(call)
                else:
                    self._refuse(call, text)
            else:
                _answer(call, reply)
        if left:  # the server may have been emptied: prepare it again
            await self._wire.close()
            self._wire = None
            left = self._still_patient(left, Disconnected("the server is not ready"))
        return left

    async def _assured(self, wire: Wire, assurance: DurabilityRequest, reply: Reply) -> bool:
        """Return whether the durability is assured. Each repetition also asks the replicas again."""
        until = time.monotonic() + self._patience
        while not assurance.holds(reply):
            if not assurance.again or isinstance(reply, Exception) or time.monotonic() > until:
                return False
            (reply,) = await wire.run([assurance.words])
        return True

    def _doubt(self, batch: Sequence[PendingCall], replies: Sequence[Reply]) -> None:
        """Resolve a batch that was written, but whose durability the server did not confirm."""
        for call, reply in zip(batch, replies, strict=True):
            if isinstance(reply, Exception):
                self._refuse(call, text_of(reply))
            elif call.kept:
                _fail(
                    [call],
                    CommitInDoubt(
                        "the server did not confirm in time that this commit is on disk (and on the required "
                        "replicas): a failure may lose it. Check the server, and read the data"
                    ),
                )
            else:
                _answer(call, reply)

    def _still_patient(self, calls: list[PendingCall], error: Disconnected) -> list[PendingCall]:
        """Return the calls that may wait for a new connection; fail the others."""
        now = time.monotonic()
        self._give_up(
            [call for call in calls if call.until <= now],
            StorageUnavailable(f"{error}; nothing was written. Try again"),
        )
        return [call for call in calls if call.until > now]

    def _give_up(self, calls: Sequence[PendingCall], error: KeelboltError) -> None:
        self._meter.failed(error, len(calls))
        give_up(calls, error)

    def _refuse(self, call: PendingCall, text: str) -> None:
        """Fail a call with the error that the server replied."""
        error = failure_of(text)
        self._meter.failed(error)
        _fail([call], error)


def give_up(calls: Sequence[PendingCall], error: KeelboltError) -> None:
    """Fail these calls; those that may have been written with CommitInDoubt."""
    for call in calls:
        if call.writes and call.doubt:
            _fail(
                [call],
                CommitInDoubt(
                    "the connection broke during this commit, which may or may not be stored, and the server is "
                    "not usable yet. Read the data when it is"
                ),
            )
        else:
            _fail([call], error)


def _answer(call: PendingCall, reply: Reply) -> None:
    """Resolve a call. Reads the reply even if the caller was cancelled, because reading may notify others."""
    try:
        result = call.read(reply)
    except Exception as error:  # noqa: BLE001 - passed to the caller
        if isinstance(error, KeelboltError):
            error.__traceback__ = None  # it refers to the future
        if not call.future.done():
            call.future.set_exception(error)
    else:
        if not call.future.done():
            call.future.set_result(result)


def _fail(calls: Sequence[PendingCall], error: KeelboltError) -> None:
    for call in calls:
        if not call.future.done():
            call.future.set_exception(error)
