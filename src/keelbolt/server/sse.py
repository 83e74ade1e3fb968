"""Server-sent events: frames in, a response out; heartbeats while nothing happens; a hint when the server stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator

from starlette.types import Receive, Send

from keelbolt.auth import ANONYMOUS, Principal
from keelbolt.errors import TooManyStreamsError
from keelbolt.protocol.sse import HEARTBEAT, event, retry
from keelbolt.server.http import NOSNIFF, Header, until_gone

RETRY_MILLISECONDS = 1000

Events = AsyncGenerator[tuple[bytes, int | None], None]
"""The events of a stream with their seqs. An empty one only opens the stream."""


class Streams:
    """The open streams of this process. A stream on which nothing was sent for ``heartbeat_seconds`` gets a comment."""

    def __init__(self, limit: int, each: int = 0, *, heartbeat_seconds: float) -> None:
        self.limit = limit
        self.each = each  # of one owner; 0: all of them
        self.open = 0
        self.closing = False
        self._heartbeat_seconds = heartbeat_seconds
        self._owners: Counter[str] = Counter()

    @contextlib.contextmanager
    def one(self, who: Principal = ANONYMOUS) -> Iterator[None]:
        """One more is open. Raises TooManyStreamsError. Callers without a name are many, and share the whole."""
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
        """Send a stream. An error before its first event is raised; later, it becomes the last event."""
        async with contextlib.aclosing(events):
            with self.one(who):
                gone = asyncio.ensure_future(until_gone(receive))
                try:
                    first = await anext(events, None)
                    await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *headers]})
                    if first is not None:
                        body = _Body(send)
                        beating = asyncio.create_task(body.beat(self._heartbeat_seconds))
                        try:
                            await _while_there(gone, _send(body, events, first, gone, frame, failed))
                        finally:
                            beating.cancel()
                            await asyncio.wait([beating])
                    last = retry(RETRY_MILLISECONDS) if self.closing else b""
                    await send({"type": "http.response.body", "body": last})
                finally:
                    gone.cancel()


class _Body:
    """The body of one response: events, and heartbeats between them."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sending = asyncio.Lock()
        self._clock = asyncio.get_running_loop().time
        self._sent_at = self._clock()

    async def write(self, body: bytes) -> None:
        async with self._sending:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
            self._sent_at = self._clock()

    async def beat(self, seconds: float) -> None:
        """Send a comment whenever nothing was sent for so long."""
        with contextlib.suppress(Exception):  # the connection failed: the next event finds that out too
            while True:
                left = self._sent_at + seconds - self._clock()
                if left > 0:
                    await asyncio.sleep(left)
                else:
                    await self.write(HEARTBEAT)


async def _send(
    body: _Body,
    events: Events,
    first: tuple[bytes, int | None],
    gone: asyncio.Future[None],
    frame: Callable[[bytes], bytes],
    failed: Callable[[Exception], bytes],
) -> None:
    data, seq = first
    while not gone.done():
        await body.write(event(frame(data), seq=seq) if data else HEARTBEAT)
        try:
            data, seq = await anext(events)
        except StopAsyncIteration:
            return
        except Exception as error:  # noqa: BLE001 - the client gets it in the form of its binding
            await body.write(event(failed(error)))
            return


_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-store, no-transform"),
    (b"x-accel-buffering", b"no"),  # proxies must not collect events
    NOSNIFF,
)


async def respond_event(send: Send, data: bytes) -> None:
    """A stream of one event."""
    await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
    await send({"type": "http.response.body", "body": event(data)})


async def _while_there(gone: asyncio.Future[None], sending: Coroutine[None, None, None]) -> None:
    """Send until that is done or the client is gone, even while nothing happens: else a stream would stay open until
    the next beat, and who opens and leaves many would use up the limit.
    """
    task = asyncio.current_task()
    assert task is not None
    there = True

    def leave(_gone: asyncio.Future[None]) -> None:
        if there:
            task.cancel()

    gone.add_done_callback(leave)
    try:
        await sending
    except asyncio.CancelledError:
        if not gone.done() or task.uncancel() > 0:  # somebody else stops us
            raise
    finally:
        there = False
