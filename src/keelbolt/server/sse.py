"""Server-sent events: responses with heartbeats while a stream is idle, and a retry hint when the server stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator
from typing import Any, cast

from starlette.types import Receive, Send

from keelbolt.auth import ANONYMOUS, Principal
from keelbolt.errors import TooManyStreamsError
from keelbolt.server.http import NOSNIFF, Header, until_gone
from keelbolt.timers import call_later

RETRY_MILLISECONDS = 1000
GATHERED_BYTES = 64 * 1024  # events that are ready together are written together, up to about this size
STUCK_SECONDS = 0.1  # a heartbeat that takes longer delays the next ones

Events = AsyncGenerator[tuple[bytes, int | None], None]
"""Events of a stream with their seqs. Empty bytes only open the stream."""


class Streams:
    """The open streams of this process. A stream that is idle for ``heartbeat_seconds`` gets a comment."""

    def __init__(self, limit: int, each: int = 0, *, heartbeat_seconds: float) -> None:
        self.limit = limit
        self.each = each  # limit per owner; 0: none
        self.open = 0
        self.closing = False
        self._beats = _Heartbeats(heartbeat_seconds)
        self._owners: Counter[str] = Counter()

    @contextlib.contextmanager
    def one(self, who: Principal = ANONYMOUS) -> Iterator[None]:
        """Count one open stream. Raise TooManyStreamsError. Anonymous callers have only the total limit."""
        owner = who.partition if self.each and not who.anonymous else ""
        if self.open >= self.limit or (owner and self._owners[owner] >= self.each):
            raise TooManyStreamsError
        self.open += 1
        if owner:
            self._owners[owner] += 1
        try:
            yield
        finally:
            self.open -= 1
            if owner:
                self._owners[owner] -= 1
                if not self._owners[owner]:
                    del self._owners[owner]

    async def serve(
        self,
        receive: Receive,
        send: Send,
        events: Events,
        *,
        frame: Callable[[bytes], bytes],
        failed: Callable[[Exception], bytes],
        headers: Iterable[Header] = (),
        who: Principal = ANONYMOUS,
    ) -> None:
        """Send a stream. An error before the first event is raised; a later one is sent as the last event."""
        async with contextlib.aclosing(events):
            with self.one(who):
                gone = asyncio.ensure_future(until_gone(receive))
                try:
                    first = await anext(events, None)
                    await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *headers]})
                    if first is not None:
                        body = _Body(send, self._beats)
                        try:
                            await _while_there(gone, _send(body, events, first, gone, frame, failed))
                        finally:
                            await body.close()
                    last = retry(RETRY_MILLISECONDS) if self.closing else b""
                    await send({"type": "http.response.body", "body": last})
                finally:
                    gone.cancel()


class _Body:
    """The body of one response: events, and a heartbeat after each idle interval."""

    def __init__(self, send: Send, beats: _Heartbeats) -> None:
        self._send = send
        self._beats = beats
        self._sending = asyncio.Lock()
        self._closed = False
        self._timer = call_later(beats.seconds, self._beat)
        self._beating: asyncio.Task[None] | None = None

    async def write(self, body: bytes) -> None:
        async with self._sending:
            self._timer.cancel()
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
            self._timer = call_later(self._beats.seconds, self._beat)

    def _beat(self) -> None:
        self._beats.due(self)

    async def beat(self) -> None:
        """Send a heartbeat, unless a write is in progress."""
        if self._closed or self._sending.locked():
            return
        self._beating = asyncio.current_task()
        with contextlib.suppress(Exception):  # the connection failed: the next event fails too
            await self.write(HEARTBEAT)
        self._beating = None

    async def close(self) -> None:
        self._closed = True
        self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
            self._timer.cancel()


class _Heartbeats:
    """Sends the heartbeats of all streams. One task sends those that are due, one after the other.

    A client that does not read can block that task; then another task continues with the next stream.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._due: deque[_Body] = deque()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def due(self, body: _Body) -> None:
        self._due.append(body)
        if self._task is None or self._task.done():
            self._begin()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(STUCK_SECONDS, self._go_on)

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._send_due(), name="heartbeats of streams")

    def _go_on(self) -> None:
        self._timer = None
        if self._due:
            self._begin()
            self._timer = asyncio.get_running_loop().call_later(STUCK_SECONDS, self._go_on)

    async def _send_due(self) -> None:
        while self._due:
            await self._due.popleft().beat()


async def _send(
    body: _Body,
    events: Events,
    first: tuple[bytes, int | None],
    gone: asyncio.Future[None],
    frame: Callable[[bytes], bytes],
    failed: Callable[[Exception], bytes],
) -> None:
    """Write the events. Events that are ready together are written together."""
    gathered: list[bytes] = []
    size = 0

    async def flush() -> None:
        nonlocal size
        if gathered:
            together = b"".join(gathered)
            gathered.clear()
            size = 0
            await body.write(together)

    data, seq = first
    while not gone.done():
        gathered.append(event(frame(data), seq=seq) if data else HEARTBEAT)
        size += len(gathered[-1])
        if size >= GATHERED_BYTES:
            await flush()
        try:
            data, seq = await _Next(events, flush)
        except StopAsyncIteration:
            break
        except Exception as error:  # noqa: BLE001 - the client gets it in the form of its binding
            gathered.append(event(failed(error)))
            break
    await flush()


class _Next:
    """Awaits the next event of a stream. If it is not ready, awaits ``flush`` first."""

    __slots__ = ("_events", "_flush")

    def __init__(self, events: Events, flush: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._events = events
        self._flush = flush

    def __await__(self) -> Generator[Any, Any, tuple[bytes, int | None]]:
        step = self._events.__anext__().__await__()
        try:
            waited_for = step.send(None)
        except StopIteration as ready:
            return cast("tuple[bytes, int | None]", ready.value)
        try:
            yield from self._flush().__await__()
            yield waited_for
        except BaseException as error:  # noqa: BLE001 - thrown into the generator, which cleans up
            return (yield from _thrown(step, error))
        return (yield from step)


def _thrown(
    step: Generator[Any, Any, tuple[bytes, int | None]], error: BaseException
) -> Generator[Any, Any, tuple[bytes, int | None]]:
    """Throw the error into the step, and await what the step then awaits."""
    try:
        while True:
            try:
                waited_for = step.throw(error)
            except StopIteration as ready:
                return cast("tuple[bytes, int | None]", ready.value)
            try:
                yield waited_for
            except BaseException as another:  # noqa: BLE001
                error = another
            else:
                return (yield from step)
    finally:
        del error  # its traceback refers to this frame


_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-store, no-transform"),
    (b"x-accel-buffering", b"no"),  # proxies must not buffer events
    NOSNIFF,
)


async def respond_event(send: Send, data: bytes) -> None:
    """Send a stream of one event."""
    await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
    await send({"type": "http.response.body", "body": event(data)})


async def _while_there(gone: asyncio.Future[None], sending: Coroutine[None, None, None]) -> None:
    """Run ``sending`` until it ends or the client disconnects, also while the stream is idle.

    Otherwise a stream would stay open until the next heartbeat, and a client that opens and drops many streams would
    exhaust the limit.
    """
    task = asyncio.current_task()
    assert task is not None
    there = True

    def leave(gone: asyncio.Future[None]) -> None:
        if there and not gone.cancelled():
            task.cancel()

    gone.add_done_callback(leave)
    try:
        await sending
    except asyncio.CancelledError:
        if not gone.done() or gone.cancelled() or task.uncancel() > 0:  # this task was cancelled from elsewhere
            raise
    finally:
        there = False


# ------------------------------------------------------------------------------------------------------------------ sse


HEARTBEAT = b": \n\n"
"""A comment: prevents proxies from closing an idle stream; clients ignore it."""


def event(data: bytes, *, seq: int | None = None) -> bytes:
    """Return one event; ``seq`` becomes its id, which a client sends back as Last-Event-ID."""
    if seq is None:
        return b"data: %b\n\n" % data
    return b"id: %d\ndata: %b\n\n" % (seq, data)


def retry(milliseconds: int) -> bytes:
    """Return a field that asks the client to wait this long before it reconnects."""
    return b"retry: %d\n\n" % milliseconds
