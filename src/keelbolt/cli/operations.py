"""Calls of the operations API by commands: over HTTP with --server, in this process with --storage."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, closing
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import click

from keelbolt.cli.loading import opened
from keelbolt.cli.options import server_option, storage_option, token_option
from keelbolt.errors import KeelboltError, MethodNotFoundError

if TYPE_CHECKING:
    from keelbolt.client.http import Http, Reply

Command = TypeVar("Command", bound=Callable[..., Any])

PREFIX = "/keelbolt/v1"
HERE = "http://localhost"  # address of the in-process application
SECONDS = 60.0
NOTHING = "there is nothing at this path"  # also the response to callers without permission
EVENT_BYTES = 64 * 1024 * 1024
_END: Any = object()


Reach = Callable[[AsyncExitStack], Awaitable["tuple[Http, str]"]]
"""Returns the client and the base URL; adds resources to close to the stack."""


class Operations:
    """Calls the operations API. Error responses are raised as their exceptions.

    ``reach`` opens the connection at the first call, so that a command with wrong usage opens nothing.
    """

    def __init__(self, reach: Reach, token: str | None = None) -> None:
        self._reach = reach
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._opened: tuple[Http, str] | None = None
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self._headers = {"Content-Type": "application/json", **authorization}

    def close(self) -> None:
        with self._runner as runner:
            runner.run(self._stack.aclose())

    async def _http(self) -> tuple[Http, str]:
        if self._opened is None:
            self._opened = await self._reach(self._stack)
        return self._opened

    def get(self, *path: str, **query: Any) -> Any:
        return self.call("GET", path, query)

    def post(self, *path: str, body: Any = None, **query: Any) -> Any:
        return self.call("POST", path, query, {} if body is None else body)

    def delete(self, *path: str, **query: Any) -> Any:
        return self.call("DELETE", path, query)

    def call(self, method: str, path: tuple[str, ...], query: Mapping[str, Any], body: Any = None) -> Any:
        """Send a request and return the JSON of its response."""
        return self._runner.run(self._ask(method, _path(path, query), body))

    def pages(self, method: str, *path: str, **query: Any) -> Iterator[Any]:
        """Yield the responses of a paged call."""
        token = ""
        while True:
            found = self.call(method, path, {**query, "pageToken": token}, {} if method == "POST" else None)
            yield found
            token = found["nextPageToken"]
            if not token:
                return

    def gather(self, name: str, limit: int, *path: str, **query: Any) -> tuple[list[Any], bool]:
        """Return up to ``limit`` items of a paged list, and whether there are more."""
        found: list[Any] = []
        for page in self.pages("GET", *path, **query, pageSize=min(100, limit)):
            found += page[name]
            if len(found) >= limit and (page["nextPageToken"] or len(found) > limit):
                return found[:limit], True
        return found, False

    def events(self, method: str, *path: str, body: Any = None, **query: Any) -> Generator[Any, None, None]:
        """Yield the events of a stream as they arrive."""
        stream = self._listen(method, _path(path, query), body)

        async def following() -> Any:
            return await anext(stream, _END)

        try:
            while (event := self._runner.run(following())) is not _END:
                yield event
        finally:
            self._runner.run(stream.aclose())

    def work(self, *path: str, body: Any, progress: Callable[[Any], None]) -> Any:
        """Start long work, report its progress, and return its result."""
        for event in self.events("POST", *path, body=body):
            if "result" in event:
                return event["result"]
            progress(event["progress"])
        raise KeelboltError("the server closed the connection without a result; run the command again")

    async def _ask(self, method: str, path: str, body: Any) -> Any:
        http, base = await self._http()
        content = None if body is None else json.dumps(body).encode()
        return _checked(await http.ask(method, base + path, headers=self._headers, body=content, seconds=SECONDS))

    async def _listen(self, method: str, path: str, body: Any) -> AsyncGenerator[Any, None]:
        from keelbolt.client.http import Parser

        http, base = await self._http()
        parser, content = Parser(EVENT_BYTES), None if body is None else json.dumps(body).encode()
        async with http.listen(method, base + path, headers=self._headers, body=content) as blocks:
            if not isinstance(blocks, AsyncGenerator):
                yield _checked(blocks)
                return
            async with aclosing(blocks):
                async for block in blocks:
                    for event in parser.feed(block):
                        yield _event(json.loads(event.data))


def _path(steps: tuple[str, ...], query: Mapping[str, Any]) -> str:
    """Return the path of a route with its query. Values that are None, False or "" are omitted."""
    given = {
        name: _text(value) for name, value in query.items() if value is not None and value is not False and value != ""
    }
    path = "".join(f"/{quote(step, safe='')}" for step in steps)
    return f"{PREFIX}{path}{'?' + urlencode(given) if given else ''}"


def _text(value: Any) -> str:
    return "true" if value is True else str(value)


def _event(found: Any) -> Any:
    """Return an event of a stream. Raise the exception of an error event."""
    if found.keys() == {"error"}:
        from keelbolt.client.failures import from_rest

        raise from_rest(found, status=found["error"].get("code", 500), headers={})
    return found


def _checked(reply: Reply) -> Any:
    from keelbolt.client.failures import from_rest, from_status
    from keelbolt.errors import A2AResponseError

    try:
        found = json.loads(reply.body)
    except ValueError:
        if reply.status < 400:
            raise A2AResponseError(f"{reply.url}: the response is not JSON; is this a Keelbolt agent?") from None
        raise from_status(reply.status, reply.headers, url=reply.url) from None
    if reply.status < 400:
        return found
    error = from_rest(found, status=reply.status, headers=reply.headers, url=reply.url)
    if type(error) is MethodNotFoundError and NOTHING in str(error):
        raise MethodNotFoundError(
            f"{error}, or the caller lacks permission: only operators may access other owners and data without owner"
        )
    raise error


# ------------------------------------------------------------------------------------------------------------ options


def operates(command: Command) -> Command:
    """Add --storage, --server and --token; the command gets the `Operations` as its first argument."""
    return _with_operations(command, create=False)


def operates_or_creates(command: Command) -> Command:
    """Like `operates`, but create a storage that does not exist."""
    return _with_operations(command, create=True)


def _with_operations(command: Command, *, create: bool) -> Command:
    @functools.wraps(command)
    def run(*args: Any, url: str | None, server: str | None, token: str | None, **options: Any) -> Any:
        if server is None and url is None:
            raise click.UsageError("set --storage URL, or --server URL of a running agent")
        if server is not None:
            operations = Operations(functools.partial(_over_http, server), token)
        else:
            assert url is not None
            operations = Operations(functools.partial(_in_process, url, create))
        with closing(operations):
            return command(operations, *args, **options)

    decorated: Any = storage_option(required=False)(server_option(token_option(run)))
    return decorated  # type: ignore[no-any-return]


async def _over_http(server: str, stack: AsyncExitStack) -> tuple[Http, str]:
    from keelbolt.client.endpoints import check_url
    from keelbolt.client.http import Http

    try:
        base = check_url(server)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--server") from None
    http = Http()
    stack.push_async_callback(http.close)
    return http, base


async def _in_process(url: str, create: bool, stack: AsyncExitStack) -> tuple[Http, str]:
    """Open the application on this storage, without a worker and without a socket. The caller is an operator."""
    from keelbolt.client.http import Http
    from keelbolt.protocol.card import AgentCardConfig
    from keelbolt.server import A2AServer
    from keelbolt.server.settings import ServerSettings

    server = A2AServer(
        worker=None,
        agent_card=AgentCardConfig(name="keelbolt", description="The operations API of a storage"),
        storage=await stack.enter_async_context(await opened(url, create=create)),
        settings=ServerSettings(operators="loopback", secret_key=os.environ.get("KEELBOLT_SECRET_KEY", "")),
    )
    await stack.enter_async_context(server)
    http = Http(app=_without_lifespan(server.app))
    stack.push_async_callback(http.close)
    return http, HERE


def _without_lifespan(app: Any) -> Callable[[Any, Any, Any], Awaitable[None]]:
    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await app(scope, receive, send)

    return serve
