"""The HTTP+JSON binding: 1.0 at the root (also under a tenant), 0.3 under /v1, or at the root on request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from starlette.types import Receive, Scope, Send

from keelbolt.errors import InvalidRequestError, MethodNotFoundError
from keelbolt.protocol import dialect, strict_json, v03_proto, v1
from keelbolt.protocol import v03 as plain_v03
from keelbolt.protocol.codec import WireCodec
from keelbolt.protocol.errors import rest_v03, rest_v1
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import Request
from keelbolt.protocol.validation import bounded
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server.caller import Caller
from keelbolt.server.dispatch import Dispatcher, explain, failure_headers
from keelbolt.server.gate import RequestGuard, echoed, issuing, query_of, resumed, shown_secrets
from keelbolt.server.http import (
    A2A_JSON,
    JSON,
    ClientGone,
    check_content_type,
    header_list,
    parsed,
    read_body,
    respond,
    while_there,
)
from keelbolt.server.sse import Streams

_TASK = r"/tasks/(?P<id>[^/:]+)"
_CONFIGS = r"/tasks/(?P<task>[^/:]+)/pushNotificationConfigs"

ROUTES: tuple[tuple[str, str, Operation], ...] = (
    ("POST", r"/message:send", Operation.send_message),
    ("POST", r"/message:stream", Operation.send_streaming_message),
    ("GET", r"/tasks", Operation.list_tasks),
    ("GET", _TASK, Operation.get_task),
    ("POST", _TASK + ":cancel", Operation.cancel_task),
    ("GET POST", _TASK + ":(?:subscribe|resubscribe)", Operation.subscribe_to_task),
    ("POST", _CONFIGS, Operation.create_push_config),
    ("GET", _CONFIGS, Operation.list_push_configs),
    ("GET", _CONFIGS + r"/(?P<config>[^/]+)", Operation.get_push_config),
    ("DELETE", _CONFIGS + r"/(?P<config>[^/]+)", Operation.delete_push_config),
    ("GET", r"/(?:extendedAgentCard|card)", Operation.get_extended_card),
)
"""Methods, path and operation; 0.3 has the same paths under /v1."""

_COMPILED = [(methods.split(), re.compile(path), operation) for methods, path, operation in ROUTES]
_OLD_CARD = "/card"  # 0.3 only
OLDER_CARD = "/agent/authenticatedExtendedCard"  # the path before 0.3, which clients of apcore agents use


@dataclass(frozen=True, slots=True)
class Route:
    """The operation of a path."""

    operation: Operation
    versions: tuple[ProtocolVersion, ...]  # versions with this path, the preferred one first
    names: Mapping[str, str]  # path parameters
    tenant: str | None = None

    def params(self, version: ProtocolVersion) -> dict[str, Any]:
        """Return the path parameters by the names that this version uses."""
        found = _names(self.operation, version, self.names)
        return found if self.tenant is None else {"tenant": self.tenant, **found}


def route(method: str, path: str) -> Route | None:
    """Return the route of a decoded path, or None. Raise MethodNotFoundError for a wrong method."""
    if path.startswith("/v1/"):
        return _found(method, path[3:], _OLD)
    if path == OLDER_CARD:
        return _found(method, _OLD_CARD, _OLD)
    tenant, slash, rest = path[1:].partition("/")
    found = _found(method, path, _EITHER)
    if found is None and tenant and slash:
        found = _found(method, f"/{rest}", _NEW, tenant)
    return found


_OLD, _NEW, _EITHER = (ProtocolVersion.v0_3,), (ProtocolVersion.v1_0,), (ProtocolVersion.v1_0, ProtocolVersion.v0_3)


def _found(method: str, path: str, versions: tuple[ProtocolVersion, ...], tenant: str | None = None) -> Route | None:
    if path == _OLD_CARD and versions is not _OLD:
        return None
    for methods, pattern, operation in _COMPILED:
        if match := pattern.fullmatch(path):
            if method not in methods:
                continue
            return Route(operation, versions, match.groupdict(), tenant)
    if any(pattern.fullmatch(path) for _, pattern, _ in _COMPILED):
        raise MethodNotFoundError(f"this path does not support {method}")
    return None


def _names(operation: Operation, version: ProtocolVersion, found: Mapping[str, str]) -> dict[str, Any]:
    if "task" not in found:
        return dict(found)
    task, config = found["task"], found.get("config")
    if version is ProtocolVersion.v1_0 or operation is Operation.create_push_config:
        named: dict[str, Any] = {"taskId": task}
        if config is not None:
            named["id"] = config
        return named
    return {"id": task, **({"pushNotificationConfigId": config} if config is not None else {})}


class Rest:
    """Serves the routes above."""

    def __init__(self, gate: RequestGuard, dispatcher: Dispatcher, streams: Streams) -> None:
        self._gate = gate
        self._dispatcher = dispatcher
        self._streams = streams
        self._limits = dispatcher.service.settings.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send, found: Route) -> None:
        version = found.versions[0]
        try:
            query = query_of(scope)
            principal = await self._gate.principal(scope)
            version = self._gate.version(found.versions, self._gate.asked(scope, query))
            given, size = await self._params(scope, receive, query)
            params = given | found.params(version)
            caller = self._gate.caller(principal, scope, query, version)
            codec, request = await parsed(size, partial(self._decode, found, version, params))
            if found.operation.streams:
                caller = resumed(caller, params)
                await self._stream(scope, receive, send, request, caller, codec, version)
                return
            base = self._dispatcher.cards.base(scope)
            issued = issuing()
            answering = self._dispatcher.answer(found.operation, request, caller, codec, base)
            answer = await while_there(receive, answering)
            status = 204 if answer == b"null" else 200
            body = b"" if status == 204 else answer
            headers = (*echoed(scope, caller), *shown_secrets(issued))
            await respond(send, status, body, content_type=_content_type(scope, version), headers=headers)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - every failure gets a response
            await self.fail(scope, send, error, version)

    async def _params(self, scope: Scope, receive: Receive, query: Mapping[str, str]) -> tuple[dict[str, Any], int]:
        """Return the parameters of query and body together, and the size of the body."""
        size = 0
        given: dict[str, Any] = {name: value for name, value in query.items() if name != "A2A-Version"}
        if scope["method"] == "POST":
            check_content_type(scope)
            body = await read_body(scope, receive, self._limits.body_bytes, self._limits.body_seconds)
            size = len(body)
            value = await parsed(size, lambda: strict_json.read(body, limits=self._limits) if body.strip() else {})
            if not isinstance(value, dict):
                raise InvalidRequestError("the body must be a JSON object")
            given.update(value)
        bounded(given, self._limits)
        return given, size

    def _decode(self, found: Route, version: ProtocolVersion, params: dict[str, Any]) -> tuple[WireCodec, Request]:
        if version is ProtocolVersion.v1_0:
            return v1, v1.decode(found.operation, params, limits=self._limits)
        request = dialect.decode(found.operation, params, limits=self._limits)
        if ProtocolVersion.v1_0 in found.versions:  # a 1.0 path requested in 0.3: such clients read plain JSON
            return (dialect.PLAIN_LIST if found.operation is Operation.list_tasks else plain_v03), request
        message = params.get("message", params.get("request"))
        plain = isinstance(message, dict) and "parts" in message
        return (plain_v03 if plain else v03_proto), request

    async def _stream(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        request: Request,
        caller: Caller,
        codec: WireCodec,
        version: ProtocolVersion,
    ) -> None:
        failed = rest_v1 if version is ProtocolVersion.v1_0 else rest_v03
        await self._streams.serve(
            receive,
            send,
            self._dispatcher.events(request, caller, codec, self._dispatcher.cards.base(scope)),
            frame=lambda data: data,
            failed=lambda error: failed(explain(error)),
            headers=chain(echoed(scope, caller), shown_secrets(issuing())),
            who=caller.principal,
        )

    async def fail(
        self, scope: Scope, send: Send, error: Exception, version: ProtocolVersion = ProtocolVersion.v1_0
    ) -> None:
        """Send an error response."""
        failure = explain(error)
        write = rest_v1 if version is ProtocolVersion.v1_0 else rest_v03
        content_type = _content_type(scope, version)
        await respond(send, failure.row.http, write(failure), content_type=content_type, headers=failure_headers(error))


def _content_type(scope: Scope, version: ProtocolVersion) -> bytes:
    """Return 1.0's own media type, or plain JSON for 0.3 and for clients that accept it by name."""
    if version is ProtocolVersion.v0_3 or "application/json" in (header_list(scope, b"accept") or ""):
        return JSON
    return A2A_JSON
