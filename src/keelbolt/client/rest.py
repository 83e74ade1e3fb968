"""The HTTP+JSON binding: paths, queries and bodies; 0.3 has the same paths under /v1.

Agents of 0.3 use one of two dialects there: the JSON of the protobuf (`content`, ROLE_USER: the official SDK), or the
plain JSON of JSON-RPC (`parts`, `kind`; subscribing is a POST: a2akit). The client decodes both. It sends a request in
the first dialect; if the agent rejects it as unreadable, the client sends it and all later ones in the second.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

from pydantic_core import to_json

from keelbolt.client.endpoints import AgentEndpoint
from keelbolt.client.failures import from_rest, from_status
from keelbolt.client.http import Http, Parser, Reply, read_json
from keelbolt.client.transport import Options, StreamFrame, decode_answer, request_headers, task_id_of, understood
from keelbolt.errors import A2AResponseError, InvalidParamsError, InvalidRequestError, KeelboltError
from keelbolt.protocol import v03, v03_proto, v1
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import (
    CancelTaskRequest,
    CreatePushConfigRequest,
    DeletePushConfigRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    ListTasksRequest,
    Request,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from keelbolt.protocol.types import Json
from keelbolt.protocol.v03_values import STATES, push_config_down
from keelbolt.protocol.versions import ProtocolVersion

_NOT_IN_QUERY = {"tenant", "id", "taskId"}


class RestTransport:
    """Sends each operation to its own path."""

    def __init__(self, http: Http, endpoint: AgentEndpoint) -> None:
        self.endpoint = endpoint
        self._http = http
        self._v1 = endpoint.version is ProtocolVersion.v1_0
        self._codec: Any = v1 if self._v1 else _Either
        self._plain = False  # 0.3 only: use the dialect of JSON-RPC
        base = endpoint.url.rstrip("/")
        self._base = base if self._v1 or base.endswith("/v1") else f"{base}/v1"

    async def close(self) -> None:
        """Do nothing; ``http`` owns the connections."""

    async def call(self, operation: Operation, request: Request, options: Options) -> Any:
        headers = request_headers(self.endpoint.version, options)
        while True:
            method, url, body = self._request(operation, request)
            reply = await self._http.ask(
                method, url, headers=headers, body=body, seconds=options.seconds, again=options.again
            )
            if not self._other_dialect(reply, request):
                break
        if reply.status == 204 or (reply.status == 200 and operation is Operation.delete_push_config):
            return None
        return decode_answer(self._codec, operation, _value(reply, task_id_of(request)))

    @asynccontextmanager
    async def stream(
        self, operation: Operation, request: Request, options: Options
    ) -> AsyncIterator[AsyncGenerator[StreamFrame, None]]:
        headers = request_headers(self.endpoint.version, options)
        headers["Accept"] = "text/event-stream"
        while True:
            method, url, body = self._request(operation, request)
            async with self._http.listen(method, url, headers=headers, body=body) as opened:
                if isinstance(opened, Reply) and self._other_dialect(opened, request):
                    continue
                async with aclosing(self._frames(opened, task_id_of(request), options)) as frames:
                    yield frames
                    return

    def _other_dialect(self, reply: Reply, request: Request) -> bool:
        """Return whether the agent rejected the first dialect of 0.3, and switch to the second."""
        if self._v1 or self._plain:
            return False
        if isinstance(request, SubscribeToTaskRequest):
            self._plain = reply.status == 405
            return self._plain
        if not isinstance(request, SendMessageRequest | CreatePushConfigRequest) or reply.status not in (400, 422):
            return False
        try:
            _value(reply, task_id_of(request))
        except (InvalidParamsError, InvalidRequestError):
            self._plain = True
        except KeelboltError:
            return False
        return self._plain

    async def _frames(
        self, opened: Reply | AsyncGenerator[bytes, None], task_id: str, options: Options
    ) -> AsyncGenerator[StreamFrame, None]:
        if isinstance(opened, Reply):
            yield StreamFrame(understood(self._codec.decode_event, _value(opened, task_id)))
            return
        parser = Parser(self._http.answer_bytes)
        async with aclosing(opened):
            async for block in opened:
                for event in parser.feed(block):
                    value = read_json(event.data)
                    if isinstance(value, dict) and value.get("error") is not None:
                        raise from_rest(
                            value, status=_status(value), headers={}, task_id=task_id, url=self.endpoint.url
                        )
                    yield StreamFrame(understood(self._codec.decode_event, value), event.id or None)
                options.hints.retry_seconds = parser.retry_seconds or 0.0

    def _encode(self, request: SendMessageRequest | CreatePushConfigRequest) -> bytes:
        if self._v1:
            return v1.encode_request(request)
        if self._plain and isinstance(request, CreatePushConfigRequest):
            return to_json(push_config_down(request.config.model_dump(mode="json", by_alias=True, exclude_none=True)))
        return v03.encode_request(request) if self._plain else v03_proto.encode_request(request)

    def _request(self, operation: Operation, request: Request) -> tuple[str, str, bytes | None]:
        """Return method, URL and body. A tenant is the first segment of the path."""
        base = self._base
        if self._v1 and request.tenant is not None:
            base += "/" + quote(request.tenant, safe="")
        tasks = f"{base}/tasks"
        match request:
            case SendMessageRequest():
                name = "stream" if operation is Operation.send_streaming_message else "send"
                return "POST", f"{base}/message:{name}", self._encode(request)
            case GetTaskRequest():
                return "GET", _task(tasks, request.id) + _query(request), None
            case ListTasksRequest():
                query = _query(request)
                if self._plain and request.status is not None:
                    query = query.replace(request.status.value, STATES[request.status.value])
                return "GET", tasks + query, None
            case CancelTaskRequest():
                body = b"{}" if request.metadata is None else v1.encode_request(request)
                return "POST", _task(tasks, request.id) + ":cancel", body
            case SubscribeToTaskRequest():
                return "POST" if self._plain else "GET", _task(tasks, request.id) + ":subscribe", None
            case CreatePushConfigRequest():
                return "POST", _configs(tasks, request.task_id), self._encode(request)
            case ListPushConfigsRequest():
                return "GET", _configs(tasks, request.task_id) + _query(request), None
            case GetPushConfigRequest():
                return "GET", _configs(tasks, request.task_id, request.id), None
            case DeletePushConfigRequest():
                return "DELETE", _configs(tasks, request.task_id, request.id), None
            case _:
                return "GET", f"{base}/{'extendedAgentCard' if self._v1 else 'card'}", None


def _task(tasks: str, task_id: str) -> str:
    return f"{tasks}/{quote(task_id, safe='')}"


def _configs(tasks: str, task_id: str, config_id: str | None = None) -> str:
    configs = f"{_task(tasks, task_id)}/pushNotificationConfigs"
    return configs if config_id is None else f"{configs}/{quote(config_id, safe='')}"


class _Either:
    """Decodes 0.3 responses over REST in either dialect: the JSON of the protobuf, or plain 0.3."""

    @staticmethod
    def decode_event(value: Json) -> Any:
        plain = isinstance(value, dict) and "kind" in value
        return (v03 if plain else v03_proto).decode_event(value)

    @staticmethod
    def decode_task(value: Json) -> Any:
        plain = isinstance(value, dict) and value.get("kind") == "task"
        return (v03 if plain else v03_proto).decode_task(value)

    @staticmethod
    def decode_task_list(value: Json) -> Any:
        return v03_proto.decode_task_list(value)

    @staticmethod
    def decode_push_config(value: Json) -> Any:
        plain = isinstance(value, dict) and "taskId" in value
        return (v03 if plain else v03_proto).decode_push_config(value)

    @staticmethod
    def decode_push_config_list(value: Json) -> Any:
        return (v03 if isinstance(value, list) else v03_proto).decode_push_config_list(value)


def _value(reply: Reply, task_id: str) -> Json:
    """Return the decoded body. Raise the exception of an error response."""
    try:
        value = reply.json()
    except A2AResponseError:
        if reply.status == 200:
            raise
        raise from_status(reply.status, reply.headers, url=reply.url) from None
    if reply.status not in (200, 201):
        raise from_rest(value, status=reply.status, headers=reply.headers, task_id=task_id, url=reply.url)
    return value


def _status(value: dict[str, Any]) -> int:
    error = value["error"]
    code = error.get("code") if isinstance(error, dict) else None
    return code if type(code) is int and 400 <= code < 600 else 500


def _query(request: Request) -> str:
    given = request.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    query = {name: _plain(value) for name, value in given.items() if name not in _NOT_IN_QUERY}
    return f"?{urlencode(query)}" if query else ""


def _plain(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
