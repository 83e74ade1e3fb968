"""Calls an ASGI application in process instead of over a network. Responses stream as the application sends them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import httpx2

App: TypeAlias = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]
]

START_SECONDS = 30.0
_END: Any = object()


class AsgiTransport(httpx2.AsyncBaseTransport):
    """Calls ``app`` for every request, for any host. The first request starts the application's lifespan."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lifespan: _Lifespan | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._lifespan is None:
            self._lifespan = _Lifespan(self._app)
        await self._lifespan.started()
        call = _Call(self._app, request, await request.aread(), self._lifespan.state)
        self._running.add(call.task)
        call.task.add_done_callback(self._running.discard)
        status, headers = await call.begun()
        return httpx2.Response(status, headers=headers, stream=call)

    async def aclose(self) -> None:
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._lifespan is not None:
            await self._lifespan.stop()


class _Call(httpx2.AsyncByteStream):
    """One request; iterating it yields the body. Closing it disconnects the client."""

    def __init__(self, app: App, request: httpx2.Request, body: bytes, state: dict[str, Any]) -> None:
        url = request.url
        self._scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.split(b"?")[0],
            "query_string": url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": (url.host, url.port),
            "client": ("127.0.0.1", 0),
            "state": dict(state),
        }
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self._answered = False
        self._begun: asyncio.Future[tuple[int, list[tuple[bytes, bytes]]]] = asyncio.get_running_loop().create_future()
        self._blocks: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)  # backpressure: the application waits
        self.task = asyncio.create_task(self._run(app))

    async def begun(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        try:
            return await self._begun
        except asyncio.CancelledError:
            await self.aclose()
            raise

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (block := await self._blocks.get()) is not _END:
            if isinstance(block, Exception):
                raise httpx2.RemoteProtocolError("the application failed during its response") from block
            yield block

    async def aclose(self) -> None:
        """Cancel the application's call, unless the response is complete and the application only finishes its work."""
        self._gone.set()
        if not self._answered:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    async def _run(self, app: App) -> None:
        try:
            await app(self._scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - a server would respond with 500 and log it
            if not self._begun.done():
                self._begun.set_result((500, []))
            elif not self._answered:
                await self._blocks.put(error)
        if not self._begun.done():
            self._begun.set_result((500, []))
        if not self._answered:
            self._answered = True
            await self._blocks.put(_END)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._begun.set_result((message["status"], list(message.get("headers", ()))))
        elif message["type"] == "http.response.body" and not self._answered:
            if message.get("body"):
                await self._blocks.put(message["body"])
            if not message.get("more_body"):
                await self._blocks.put(_END)
                self._answered = True


class _Lifespan:
    """Runs the application's lifespan in its own task. Applications without a lifespan work too."""

    def __init__(self, app: App) -> None:
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._started = asyncio.Event()
        self.state: dict[str, Any] = {}
        self._failure = ""
        self._events.put_nowait({"type": "lifespan.startup"})
        self._task = asyncio.create_task(self._run(app))

    async def started(self) -> None:
        async with asyncio.timeout(START_SECONDS):
            await self._started.wait()
        if self._failure:
            raise httpx2.ConnectError(self._failure)

    async def stop(self) -> None:
        if not self._task.done():
            self._events.put_nowait({"type": "lifespan.shutdown"})
        await self._task

    async def _run(self, app: App) -> None:
        scope: dict[str, Any] = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self.state}
        with contextlib.suppress(Exception):  # an application without a lifespan raises
            await app(scope, self._events.get, self._send)
        self._started.set()

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "lifespan.startup.failed":
            self._failure = str(message.get("message") or "the application did not start")
        if message["type"].startswith("lifespan.startup."):
            self._started.set()
