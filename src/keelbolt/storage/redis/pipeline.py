"""Sends whatever has queued in one round trip, in call order, and resolves what a broken connection left in doubt.

There is no timer: while one batch is on its way, the next one gathers. A writing call carries its session and number,
and the server keeps its result until the session's next batch; so after a reconnect it is asked again, and is either
told what it did or does it now.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from keelbolt.errors import CommitInDoubt, KeelboltError, StorageClosed, StorageUnavailable
from keelbolt.storage.hints import Topic
from keelbolt.storage.ids import new_id
from keelbolt.storage.meter import Meter
from keelbolt.storage.redis.connection import Reply, Wire
from keelbolt.storage.redis.failures import (
    Disconnected,
    failure_of,
    is_moved,
    is_replica,
    lacks_functions,
    passes,
    text_of,
)
from keelbolt.storage.redis.hints import Announcer

logger = logging.getLogger("keelbolt.storage")

BATCH_CALLS = 512
BATCH_BYTES = 8 * 1024 * 1024
FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5

MODE = 6  # the place of the mode among the words of a writing call
_FIRST, _AGAIN, _PLAIN = b"f", b"a", b""


@dataclass(slots=True, eq=False)
class Call:
    """``read`` turns the reply into the result, or raises. ``topics``: who may have something to see afterwards.
    ``kept``: it is answered when the server will keep it. ``doubt``: it may have been done, without an answer.
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
        """By which a cluster knows the server."""
        return self.words[3] if self.words[0] == b"FCALL" else self.words[1]


@dataclass(frozen=True, slots=True)
class Assurance:
    """What is asked of the server after each batch of writes, and whether its answer will do.

    ``again``: what is not so yet may be so soon, and it is asked until then.
    """

    words: tuple[bytes, ...]
    holds: Callable[[Reply], bool]
    again: bool = True

    @classmethod
    def counting(cls, *words: bytes, enough: tuple[int, ...]) -> Assurance:
        """For WAITAOF and WAIT, which answer how many have confirmed."""

        def holds(reply: Reply) -> bool:
            found = reply if isinstance(reply, list) else [reply]
            return all(isinstance(have, int) and have >= want for have, want in zip(found, enough, strict=True))

        return cls(words, holds)


class Pipeline:
    """Calls to one server, in order. ``connect`` opens and prepares a connection; ``moved`` takes calls elsewhere.

    ``announcer`` tells others of a batch, behind what makes it durable.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Wire]],
        *,
        patience_seconds: float,
        assurance: Assurance | None = None,
        moved: Callable[[Call], None] | None = None,
        announcer: Announcer | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._connect = connect
        self._announcer = announcer
        self._patience = patience_seconds
        self._assurance = assurance
        self._moved = moved
        self._meter = meter or Meter()
        self._queue: list[Call] = []
        self._busy = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._wire: Wire | None = None
        self._session = new_id().encode()
        self._number = 0
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name="keelbolt-redis-pipeline")

    # ---------------------------------------------------------------------------------------------------- calling

    def call(self, words: list[bytes], read: Callable[[Reply], Any], *, kept: bool = False) -> asyncio.Future[Any]:
        """A call that may be repeated. ``kept``: it writes, and is answered like a write."""
        return self._add(words, read, writes=False, kept=kept)

    def write(
        self,
        function: bytes,
        base: bytes,
        words: Sequence[bytes],
        read: Callable[[Reply], Any],
        topics: Sequence[Topic] = (),
    ) -> asyncio.Future[Any]:
        """A call of a writing function, done once."""
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
        self.take(Call(words, read, future, time.monotonic() + self._patience, writes, size, topics, kept))
        return future

    def take(self, call: Call) -> None:
        if self._closing:
            call.future.set_exception(StorageClosed())
            return
        self._queue.append(call)
        self._idle.clear()
        self._wake.set()

    async def drained(self) -> None:
        """Everything that was called before this is answered."""
        while self._queue or self._busy:
            await self._idle.wait()

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
            except asyncio.CancelledError:  # the loop ends, and nobody has closed us: finish what was called
                self._closing = True
            self._wake.clear()
            while self._queue:
                self._busy = True
                await self._serve(self._next_batch())
                self._busy = False
            self._idle.set()
            if self._closing:
                if self._wire is not None:
                    await self._wire.close()
                return

    def _next_batch(self) -> list[Call]:
        count = size = 0
        for call in self._queue:
            size += call.size
            if count and (size > BATCH_BYTES or count >= BATCH_CALLS):
                break
            count += 1
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch

    async def _serve(self, batch: list[Call]) -> None:
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
            except asyncio.CancelledError:  # the loop ends, and nobody has closed us: finish what was called
                self._closing = True
                self._wire = None
                left = batch
            except KeelboltError as error:  # it can be reached, and can't be used
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

    async def _once(self, batch: list[Call]) -> list[Call]:
        """Send a batch and answer it; answers which calls have to be sent again."""
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
            replies.pop()  # a hint that fails is found by the poll
        elif announcer is not None:
            announcer.tell(topics)
        if assured is not None and not await self._assured(self._wire, assured, replies.pop()):
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
        if left:  # perhaps a server that was emptied: prepare it anew
            await self._wire.close()
            self._wire = None
            left = self._still_patient(left, Disconnected("the server is not ready"))
        return left

    async def _assured(self, wire: Wire, assurance: Assurance, reply: Reply) -> bool:
        """Whether what was asked for holds. Asked again and again: each time the replicas are asked as well."""
        until = time.monotonic() + self._patience
        while not assurance.holds(reply):
            if not assurance.again or isinstance(reply, Exception) or time.monotonic() > until:
                return False
            (reply,) = await wire.run([assurance.words])
        return True

    def _doubt(self, batch: Sequence[Call], replies: Sequence[Reply]) -> None:
        """Written, but the server did not confirm that it will keep it."""
        for call, reply in zip(batch, replies, strict=True):
            if isinstance(reply, Exception):
                self._refuse(call, text_of(reply))
            elif call.kept:
                _fail(
                    [call],
                    CommitInDoubt(
                        "the server did not confirm in time that this is on disk (and on the replicas asked for): it "
                        "may or may not be there after a failure. Look, and check the server"
                    ),
                )
            else:
                _answer(call, reply)

    def _still_patient(self, calls: list[Call], error: Disconnected) -> list[Call]:
        """Those that may wait for a new connection; the others fail."""
        now = time.monotonic()
        self._give_up(
            [call for call in calls if call.until <= now],
            StorageUnavailable(f"{error}; nothing was written. Try again"),
        )
        return [call for call in calls if call.until > now]

    def _give_up(self, calls: Sequence[Call], error: KeelboltError) -> None:
        self._meter.failed(error, len(calls))
        give_up(calls, error)

    def _refuse(self, call: Call, text: str) -> None:
        """Fail a call with the error that the server replied."""
        error = failure_of(text)
        self._meter.failed(error)
        _fail([call], error)


def give_up(calls: Sequence[Call], error: KeelboltError) -> None:
    """Fail these calls; what may have been written is told so."""
    for call in calls:
        if call.writes and call.doubt:
            _fail(
                [call],
                CommitInDoubt(
                    "the connection broke while this was being written, and the server can't be used again: it may or "
                    "may not be there. Look when it can"
                ),
            )
        else:
            _fail([call], error)


def _answer(call: Call, reply: Reply) -> None:
    """Also for a caller who no longer waits: others may have to be woken."""
    result = error = None
    try:
        result = call.read(reply)
    except Exception as raised:  # noqa: BLE001 - whatever reading it raises belongs to its caller
        error = raised
    if call.future.done():
        return
    if error is not None:
        call.future.set_exception(error)
    else:
        call.future.set_result(result)


def _fail(calls: Sequence[Call], error: KeelboltError) -> None:
    for call in calls:
        if not call.future.done():
            call.future.set_exception(error)
