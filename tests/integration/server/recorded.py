"""The official SDK's responses, byte for byte, read strictly by the official protobuf messages of 1.0."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import httpx

from tests.unit.protocol.official import parse_v1

_DETAILS: Any = import_module("google.rpc.error_details_pb2")
_JSON: Any = import_module("google.protobuf.json_format")

ANSWERS = {
    "SendMessage": "SendMessageResponse",
    "SendStreamingMessage": "StreamResponse",
    "SubscribeToTask": "StreamResponse",
    "GetTask": "Task",
    "CancelTask": "Task",
    "ListTasks": "ListTasksResponse",
    "CreateTaskPushNotificationConfig": "TaskPushNotificationConfig",
    "GetTaskPushNotificationConfig": "TaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs": "ListTaskPushNotificationConfigsResponse",
    "DeleteTaskPushNotificationConfig": "",
    "GetExtendedAgentCard": "AgentCard",
}
_PATHS = (
    (r"POST /message:send", "SendMessage"),
    (r"POST /message:stream", "SendStreamingMessage"),
    (r"(GET|POST) /tasks/[^/:]+:subscribe", "SubscribeToTask"),
    (r"GET /tasks/[^/:]+", "GetTask"),
    (r"POST /tasks/[^/:]+:cancel", "CancelTask"),
    (r"GET /tasks", "ListTasks"),
    (r"POST /tasks/[^/:]+/pushNotificationConfigs", "CreateTaskPushNotificationConfig"),
    (r"GET /tasks/[^/:]+/pushNotificationConfigs/[^/]+", "GetTaskPushNotificationConfig"),
    (r"GET /tasks/[^/:]+/pushNotificationConfigs", "ListTaskPushNotificationConfigs"),
    (r"DELETE /tasks/[^/:]+/pushNotificationConfigs/[^/]+", "DeleteTaskPushNotificationConfig"),
    (r"GET /extendedAgentCard", "GetExtendedAgentCard"),
)


@dataclass
class Exchange:
    """A request and its response."""

    request: httpx.Request
    response: httpx.Response
    body: bytearray = field(default_factory=bytearray)

    def check(self) -> str | None:
        """Read the response strictly; return the name of the operation."""
        if self.request.url.path.startswith("/.well-known"):
            return None
        kind = self.response.headers["content-type"]
        if self.request.url.path == "/":
            operation = json.loads(self.request.content)["method"]
        else:
            line = f"{self.request.method} {self.request.url.path}"
            operation = next(name for path, name in _PATHS if re.fullmatch(path, line))
        if kind.startswith("text/event-stream"):
            bodies = [line[6:] for line in bytes(self.body).splitlines() if line.startswith(b"data: ")]
        else:
            assert kind == ("application/json" if self.request.url.path == "/" else "application/a2a+json")
            bodies = [bytes(self.body)]
        for body in bodies:
            self._check(operation, body)
        return str(operation)

    def _check(self, operation: str, body: bytes) -> None:
        value = json.loads(body)
        if self.request.url.path == "/":
            assert value["jsonrpc"] == "2.0"
            assert value["id"] == json.loads(self.request.content)["id"]
            assert set(value) - {"jsonrpc", "id"} in ({"result"}, {"error"})
            if "error" in value:
                assert set(value["error"]) == {"code", "message", "data"}
                _details(value["error"]["data"])
                return
            value = value["result"]
        elif self.response.status_code >= 400:
            assert set(value) == {"error"}
            assert set(value["error"]) == {"code", "status", "message", "details"}
            assert value["error"]["code"] == self.response.status_code
            _details(value["error"]["details"])
            return
        if ANSWERS[operation]:
            parse_v1(ANSWERS[operation], json.dumps(value).encode())
        else:
            assert value == {}


def _details(details: list[dict[str, Any]]) -> None:
    assert details
    for detail in details:
        name = detail.pop("@type").removeprefix("type.googleapis.com/google.rpc.")
        _JSON.ParseDict(detail, getattr(_DETAILS, name)(), ignore_unknown_fields=False)


class Recorder(httpx.AsyncHTTPTransport):
    """A transport that records."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges: list[Exchange] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        exchange = Exchange(request, response)
        self.exchanges.append(exchange)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Copied(response.stream, exchange.body)
        return response


class _Copied(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, copy: bytearray) -> None:
        self._stream = stream
        self._copy = copy

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._copy += chunk
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
