"""Serves the operations API: finds the route, authenticates the caller, calls the handler, sends its result or file."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from keelbolt.auth import Principal
from keelbolt.errors import BadCursor, InvalidRequestError, InvalidTaskRequest, MethodNotFoundError
from keelbolt.kernel import BlobReader
from keelbolt.operations.call import OpsCall, Reach, acting, reach_of
from keelbolt.operations.data import DataOperations, InspectionOperations
from keelbolt.operations.route import document
from keelbolt.operations.state import StateOperations
from keelbolt.operations.system import SystemOperations
from keelbolt.operations.table import PREFIX, ROUTES, OpsRoute
from keelbolt.operations.tasks import DeadOperations, FileOperations, TaskOperations
from keelbolt.operations.turns import GateOperations, TurnOperations
from keelbolt.operations.webhooks import WebhookOperations
from keelbolt.protocol import strict_json
from keelbolt.protocol.errors import rest_v1
from keelbolt.server.cards import Cards
from keelbolt.server.dispatch import explain, failure_headers
from keelbolt.server.gate import RequestGuard, query_of
from keelbolt.server.health import HealthRoutes
from keelbolt.server.http import ClientGone, Header, check_content_type, header, parsed, read_body, respond, until_gone
from keelbolt.server.origins import at_this_machine
from keelbolt.server.service import AgentService
from keelbolt.server.sse import Streams
from keelbolt.tasks.files import TaskFile


class OperationsApi:
    """Serves all paths under /keelbolt/v1/."""

    def __init__(
        self,
        gate: RequestGuard,
        service: AgentService,
        cards: Cards,
        streams: Streams,
        health: HealthRoutes,
        *,
        local: bool,
    ) -> None:
        self._gate = gate
        self._cards = cards
        self._streams = streams
        self._limits = service.settings.limits
        self._operator_roles = service.settings.operator_roles
        self._local = local  # loopback clients are operators
        self._routes = [(route, route.pattern) for route in ROUTES]
        self._handlers = (
            TaskOperations(service.engine, service.send_as),
            DeadOperations(service.engine),
            WebhookOperations(service.engine, service.push),
            DataOperations(service.engine),
            InspectionOperations(service.engine),
            FileOperations(service.engine),
            SystemOperations(service.engine, health.about, authenticates=gate.authenticates),
            StateOperations(service.engine),
            GateOperations(service.engine),
            TurnOperations(service.engine),
        )

    def takes(self, path: str) -> bool:
        return path.startswith(f"{PREFIX}/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        try:
            principal = await self._gate.principal(scope)
            route, names = self._find(scope["method"], path)
            call = await self._call(scope, receive, route, names, principal)
            if route.name == "openapi":
                await respond(send, 200, to_json(document(call.base, ROUTES)))
            elif route.stream:
                await self._streams.serve(
                    receive,
                    send,
                    self._handler(route)(call),
                    frame=lambda data: data,
                    failed=lambda error: rest_v1(explain(error)),
                    who=principal,
                )
            elif route.file:
                await send_file(scope, receive, send, *await self._handler(route)(call))
            else:
                await respond(send, 200, await self._handler(route)(call))
        except ClientGone:
            return
        except BadCursor:
            await self._fail(send, InvalidTaskRequest("the page token is invalid or belongs to another list"))
        except Exception as error:  # noqa: BLE001 - every failure gets a response
            await self._fail(send, error)

    async def _fail(self, send: Send, error: Exception) -> None:
        failure = explain(error)
        await respond(send, failure.row.http, rest_v1(failure), headers=failure_headers(error))

    def _find(self, method: str, path: str) -> tuple[OpsRoute, dict[str, str]]:
        """Return the route of a decoded path, and its path parameters."""
        for route, pattern in self._routes:
            if route.method == method and (match := pattern.fullmatch(path)):
                return route, match.groupdict()
        raise MethodNotFoundError("there is nothing at this path")

    async def _call(
        self, scope: Scope, receive: Receive, route: OpsRoute, names: dict[str, str], principal: Principal
    ) -> OpsCall:
        query = query_of(scope)
        body: Any = {}
        if route.method == "POST":
            check_content_type(scope)
            text = await read_body(scope, receive, self._limits.body_bytes, self._limits.body_seconds)
            if text.strip():
                body = await parsed(len(text), lambda: strict_json.read(text, limits=self._limits))
            if not isinstance(body, dict):
                raise InvalidRequestError("the body must be a JSON object")
        local = self._local and at_this_machine(scope)
        reach: Reach = "all" if local else reach_of(principal, self._operator_roles)
        whose = acting(principal, query, reach=reach, needs_all=route.operator)
        route.check(query, body)
        after = self._gate.caller(principal, scope, query).after
        return OpsCall(
            whose,
            names,
            query,
            body,
            after,
            self._cards.base(scope),
            principal.owner,
            reach,
            principal,
            everywhere=query.get("all") == "true",
        )

    def _handler(self, route: OpsRoute) -> Callable[[OpsCall], Any]:
        for handlers in self._handlers:
            if (handler := getattr(handlers, route.name, None)) is not None:
                found: Callable[[OpsCall], Any] = handler
                return found
        raise MethodNotFoundError("there is nothing at this path")


# ---------------------------------------------------------------------------------------------------------------- files


_NAME_CHARACTERS = 200
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_CACHE = (b"cache-control", b"private, no-cache")  # cached, but revalidated, so that access is checked each time
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(; ?charset=[\w-]+)?", re.ASCII)


async def send_file(scope: Scope, receive: Receive, send: Send, file: TaskFile, reader: BlobReader) -> None:
    """Respond with a file or the requested range of it. Browsers save it as a download and do not run it."""
    etag = f'"{file.digest}"'.encode()
    tags = [tag.strip().removeprefix("W/") for tag in (header(scope, b"if-none-match") or "").split(",")]
    if etag.decode() in tags:
        await send({"type": "http.response.start", "status": 304, "headers": [(b"etag", etag), _CACHE]})
        await send({"type": "http.response.body", "body": b""})
        return
    wanted = _range(header(scope, b"range"), file.size)
    if wanted == (0, 0):
        await respond(send, 416, b"{}", headers=((b"content-range", b"bytes */%d" % file.size),))
        return
    start, end = wanted or (0, file.size)
    headers = [*_headers(file), (b"etag", etag), (b"content-length", b"%d" % (end - start))]
    if wanted is not None:
        headers.append((b"content-range", b"bytes %d-%d/%d" % (start, end - 1, file.size)))
    await send({"type": "http.response.start", "status": 200 if wanted is None else 206, "headers": headers})
    gone = asyncio.ensure_future(until_gone(receive))
    try:
        async for chunk in reader.chunks(start, end):
            if gone.done():  # `send` does not report a closed connection; stop reading the blob
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    finally:
        gone.cancel()
    await send({"type": "http.response.body", "body": b""})


def _headers(file: TaskFile) -> Iterator[Header]:
    kind = file.media_type or ""
    yield b"content-type", (kind if _MEDIA_TYPE.fullmatch(kind) else "application/octet-stream").encode()
    name = quote((file.filename or file.digest[:12])[:_NAME_CHARACTERS], safe="", errors="replace")
    yield b"content-disposition", f"attachment; filename*=UTF-8''{name}".encode()
    yield b"accept-ranges", b"bytes"
    yield _CACHE
    yield b"x-content-type-options", b"nosniff"
    yield b"cross-origin-resource-policy", b"same-origin"
    yield b"content-security-policy", b"sandbox"


def _range(asked: str | None, size: int) -> tuple[int, int] | None:
    """Return the requested range, or (0, 0) if it can't be satisfied; None for the whole file or an empty one."""
    match = _RANGE.fullmatch((asked or "").strip())
    if match is None or not size or not (match[1] or match[2]):
        return None
    if match[1]:
        start, end = int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
    else:
        start, end = max(size - int(match[2]), 0), size
    return (start, end) if start < end else (0, 0)
