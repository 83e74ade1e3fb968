"""The gRPC binding (``keelbolt[grpc]``) of 1.0 and 0.3: the official messages, through the same codecs as JSON.

If the agent numbers its events (a Keelbolt agent does), a stream resumes after the last number, as with SSE.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import to_json

from keelbolt.client.endpoints import AgentEndpoint, place_of
from keelbolt.client.failures import from_grpc
from keelbolt.client.http import Http
from keelbolt.client.transport import Options, StreamFrame, decode_answer, request_headers, task_id_of, understood
from keelbolt.errors import A2AResponseError, A2ATimeoutError, KeelboltError, MethodNotFoundError, ParseError
from keelbolt.protocol import v03_proto, v1
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.protobuf.extra import load
from keelbolt.protocol.protobuf.methods import METHODS_V03, METHODS_V1, Method
from keelbolt.protocol.protobuf.numbers import number_of
from keelbolt.protocol.protobuf.shapes import DecodeError, error_details_pb2, status_pb2
from keelbolt.protocol.requests import (
    CreatePushConfigRequest,
    DeletePushConfigRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    Request,
    SendMessageRequest,
)
from keelbolt.protocol.versions import ProtocolVersion

grpc: Any = load("grpc")
aio: Any = load("grpc.aio")

DETAILS = "grpc-status-details-bin"
MAX_METADATA_BYTES = 64 * 1024
_NOT_METADATA = frozenset({"content-type", "accept", "accept-encoding", "user-agent", "connection", "host"})


class GrpcTransport:
    """One channel. ``ping_seconds``: keepalive interval of an idle connection, if the agent allows it."""

    def __init__(self, http: Http, endpoint: AgentEndpoint, *, ping_seconds: float | None = None) -> None:
        self.endpoint = endpoint
        self._http = http
        methods = METHODS_V1 if endpoint.version is ProtocolVersion.v1_0 else METHODS_V03
        self._methods: dict[Operation, Method] = {method.operation: method for method in methods.values()}
        self._codec: Any = v1 if endpoint.version is ProtocolVersion.v1_0 else v03_proto
        self._ping_seconds = ping_seconds
        self._channel: Any = None

    async def close(self) -> None:
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()

    async def call(self, operation: Operation, request: Request, options: Options) -> Any:
        method, data = self._request(operation, request)
        call = self._opened().unary_unary(method.path)(
            data, metadata=await self._metadata(options), timeout=options.seconds or self._http.timeout
        )
        try:
            answer = await call
        except aio.AioRpcError as error:
            raise self._failure(error, request) from error
        if operation is Operation.delete_push_config:
            return None
        return decode_answer(self._codec, operation, _read(method, answer))

    @asynccontextmanager
    async def stream(
        self, operation: Operation, request: Request, options: Options
    ) -> AsyncIterator[AsyncGenerator[StreamFrame, None]]:
        method, data = self._request(operation, request)
        call = self._opened().unary_stream(method.path)(data, metadata=await self._metadata(options))
        try:
            async with aclosing(self._frames(call, method, request)) as frames:
                yield frames
        finally:
            call.cancel()

    async def _frames(self, call: Any, method: Method, request: Request) -> AsyncGenerator[StreamFrame, None]:
        try:
            async for answer in call:
                number = number_of(answer)
                value = understood(self._codec.decode_event, _read(method, answer))
                yield StreamFrame(value, None if number is None else str(number))
        except aio.AioRpcError as error:
            raise self._failure(error, request) from error

    def _opened(self) -> Any:
        if self._channel is None:
            parts = urlsplit(self.endpoint.url)
            secure = parts.scheme == "https"
            host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            target = f"{host}:{parts.port or (443 if secure else 80)}"
            options: list[tuple[str, Any]] = [
                ("grpc.max_receive_message_length", self._http.answer_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", MAX_METADATA_BYTES),
                ("grpc.enable_retries", 0),  # the client has its own retries
                # The stream determines the delay after a break, not the channel.
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
                ("grpc.use_local_subchannel_pool", 1),
            ]
            if self._ping_seconds is not None:
                options.append(("grpc.keepalive_time_ms", int(self._ping_seconds * 1000)))
            if secure:
                self._channel = aio.secure_channel(target, grpc.ssl_channel_credentials(), options=options)
            else:
                self._channel = aio.insecure_channel(target, options=options)
        return self._channel

    def _request(self, operation: Operation, request: Request) -> tuple[Method, bytes]:
        method = self._methods.get(operation)
        if method is None:
            raise MethodNotFoundError(f"A2A {self.endpoint.version} has no {operation.value} over gRPC")
        json = v1.encode_request(request) if self.endpoint.version is ProtocolVersion.v1_0 else _request_v03(request)
        return method, method.write_request(json)

    async def _metadata(self, options: Options) -> tuple[tuple[str, str], ...]:
        headers = request_headers(self.endpoint.version, options)
        await self._http.add_credentials(headers, self.endpoint.url)
        lower = {name.lower(): value for name, value in headers.items()}
        return tuple((name, value) for name, value in lower.items() if name not in _NOT_METADATA)

    def _failure(self, error: Any, request: Request) -> KeelboltError:
        code = error.code().name
        words = error.details() or ""
        if code == "DEADLINE_EXCEEDED":
            return A2ATimeoutError(f"{place_of(self.endpoint.url)}: the agent did not respond in time")
        trailing = {name: value for name, value in error.trailing_metadata() or () if isinstance(value, str)}
        packed = next((value for name, value in error.trailing_metadata() or () if name == DETAILS), b"")
        return from_grpc(
            code, words, _details(packed), headers=trailing, task_id=task_id_of(request), url=self.endpoint.url
        )


def _read(method: Method, answer: bytes) -> Any:
    try:
        return method.read_answer(answer)
    except ParseError as error:
        raise A2AResponseError(str(error)) from None


def _details(packed: bytes) -> list[dict[str, Any]]:
    """Return the details of a google.rpc.Status in their JSON form."""
    found: list[dict[str, Any]] = []
    try:
        status = status_pb2.Status.FromString(packed)
        for detail in list(status.details)[:10]:
            if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
                info = error_details_pb2.ErrorInfo.FromString(detail.value)
                found.append({"reason": info.reason, "metadata": dict(info.metadata)})
            elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
                bad = error_details_pb2.BadRequest.FromString(detail.value)
                wrong = [{"field": one.field, "description": one.description} for one in bad.field_violations]
                found.append({"fieldViolations": wrong})
    except DecodeError:
        return []
    return found


def _request_v03(request: Request) -> bytes:
    """Encode a request of 0.3, which names its task or config as a resource."""
    match request:
        case SendMessageRequest() | CreatePushConfigRequest():
            return v03_proto.encode_request(request)
        case GetPushConfigRequest() | DeletePushConfigRequest():
            return to_json({"name": f"tasks/{request.task_id}/pushNotificationConfigs/{request.id or ''}"})
        case ListPushConfigsRequest():
            return to_json({"parent": f"tasks/{request.task_id}"})
        case GetTaskRequest():
            return to_json({"name": f"tasks/{request.id}", "historyLength": request.history_length or 0})
        case _:
            task_id = task_id_of(request)
            return to_json({"name": f"tasks/{task_id}"} if task_id else {})
