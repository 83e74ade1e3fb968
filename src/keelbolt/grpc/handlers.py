"""Runs a gRPC call: gate, dispatcher, response message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn
from urllib.parse import unquote

from pydantic_core import from_json, to_json
from starlette.types import Scope

from keelbolt.errors import StoppingError
from keelbolt.grpc.library import grpc
from keelbolt.protocol.card import card_v03_proto
from keelbolt.protocol.errors import DOMAIN, WireFailure
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.protobuf.methods import Method
from keelbolt.protocol.protobuf.numbers import numbered
from keelbolt.protocol.protobuf.shapes import error_details_pb2, status_pb2
from keelbolt.protocol.requests import Request
from keelbolt.protocol.types import PAUSED, TERMINAL
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server.caller import Caller
from keelbolt.server.dispatch import Dispatcher, explain, failure_headers
from keelbolt.server.gate import RequestGuard, echoed, issuing, shown_secrets
from keelbolt.server.http import header, parsed
from keelbolt.server.sse import Streams

Unary = Callable[[bytes, Any], Awaitable[bytes]]
Streaming = Callable[[bytes, Any], Awaitable[None]]


class Handlers:
    """The handlers of all methods."""

    def __init__(self, gate: RequestGuard, dispatcher: Dispatcher, streams: Streams) -> None:
        self._gate = gate
        self._dispatcher = dispatcher
        self._streams = streams
        self._limits = dispatcher.service.settings.limits
        self._calls = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def _begin(self) -> None:
        self._calls += 1
        self.idle.clear()

    def _end(self) -> None:
        self._calls -= 1
        if not self._calls:
            self.idle.set()

    def unary(self, method: Method) -> Unary:
        """Return the handler of a method with one response."""
        old_card = method.operation is Operation.get_extended_card and method.version is ProtocolVersion.v0_3

        async def call(data: bytes, context: Any) -> bytes:
            self._begin()
            try:
                request, caller = await self._admit(method, data, context)
                if old_card:
                    return method.write_answer(await self._card(request, caller, method))
                issued = issuing()
                answer = await self._dispatcher.answer(method.operation, request, caller, method.codec, "")
                _show(issued, context)
                return method.write_answer(answer)
            except Exception as error:  # noqa: BLE001 - every failure gets a response
                await fail(context, error, method.version)
            finally:
                self._end()

        return call

    def streaming(self, method: Method) -> Streaming:
        """Return the handler of a method that streams events."""

        async def call(data: bytes, context: Any) -> None:
            self._begin()
            try:
                request, caller = await self._admit(method, data, context)
                with self._streams.one(caller.principal):
                    events = self._dispatcher.events(request, caller, method.codec, "")
                    issued = issuing()
                    await self._stream(method, events, context)
                    _show(issued, context)
            except Exception as error:  # noqa: BLE001 - every failure gets a response
                await fail(context, error, method.version)
            finally:
                self._end()

        return call

    async def _admit(self, method: Method, data: bytes, context: Any) -> tuple[Request, Caller]:
        scope = scope_of(method.path, context.invocation_metadata(), context.peer())
        principal = await self._gate.principal(scope)
        self._gate.version((method.version,), self._gate.asked(scope, {}))
        caller = self._gate.caller(principal, scope, query_of(scope), method.version)
        request = await parsed(len(data), lambda: self._decode(method, data))
        if caller.extensions:
            await context.send_initial_metadata(pairs(echoed(scope, caller)))
        return request, caller

    def _decode(self, method: Method, data: bytes) -> Request:
        return method.codec.decode(
            method.operation, method.read_request(data, limits=self._limits), limits=self._limits
        )

    async def _stream(
        self, method: Method, events: AsyncGenerator[tuple[bytes, int | None], None], context: Any
    ) -> None:
        last = b"{}"
        async with aclosing(events):
            async for json, seq in events:
                if json:
                    await context.write(numbered(method.write_answer(json), seq))
                    last = json
        if self._streams.closing and not _over(last):
            raise StoppingError

    async def _card(self, request: Request, caller: Caller, method: Method) -> bytes:
        """Return the card for 0.3, which has one method: the extended card, or the public one if there is none."""
        cards = self._dispatcher.cards
        if cards.config.extended_card:
            card = await self._dispatcher.answer(method.operation, request, caller, method.codec, "")
        else:
            card = cards.encoded("").body
        return to_json(card_v03_proto(from_json(card)))


def _show(issued: list[str], context: Any) -> None:
    """Send new signing secrets of webhooks in the trailing metadata."""
    if issued:
        context.set_trailing_metadata(pairs(tuple(shown_secrets(issued))))


_ENDS = frozenset(state.value for state in TERMINAL | PAUSED) | {"TASK_STATE_CANCELLED"}


def _over(event: bytes) -> bool:
    """Return whether this is the last event."""
    found = from_json(event)
    update = found.get("statusUpdate") or found.get("task") or {}
    return "message" in found or update.get("status", {}).get("state") in _ENDS


# ------------------------------------------------------------------------------------------------------------- statuses


DETAILS = "grpc-status-details-bin"
MAX_MESSAGE_CHARACTERS = 1000
MAX_DETAILS_BYTES = 4096  # clients accept 8 kB of metadata and drop a response with more

# HTTP uses 404 for this as well; gRPC has its own status for an unknown method.
_CODES = {"METHOD_NOT_FOUND": "UNIMPLEMENTED"}


async def fail(context: Any, error: Exception, version: ProtocolVersion = ProtocolVersion.v1_0) -> NoReturn:
    """End a call with this error. Always raises. For 0.3, the error's name precedes the message."""
    failure = explain(error)
    message = failure.message if version is ProtocolVersion.v1_0 else f"{failure.row.name}: {failure.message}"
    message = message[:MAX_MESSAGE_CHARACTERS]
    code = grpc.StatusCode[_CODES.get(failure.row.reason, failure.row.grpc)]
    trailing = ((DETAILS, details(failure, code.value[0], message)), *pairs(failure_headers(error)))
    await context.abort(code, message, trailing)
    raise AssertionError("abort raises")


def details(failure: WireFailure, code: int, message: str) -> bytes:
    """Return the bytes of google.rpc.Status: an ErrorInfo, and as many field violations as fit."""
    status = status_pb2.Status(code=code, message=message)
    info = error_details_pb2.ErrorInfo(reason=failure.row.reason, domain=DOMAIN, metadata=failure.metadata)
    status.details.add().Pack(info)
    if failure.violations:
        wrong = [{"field": item.field, "description": item.description} for item in failure.violations]
        request = error_details_pb2.BadRequest(field_violations=wrong)
        while request.ByteSize() > MAX_DETAILS_BYTES:
            del request.field_violations[-1]
        status.details.add().Pack(request)
    data: bytes = status.SerializeToString()
    return data


# ------------------------------------------------------------------------------------------------------------- metadata


AFTER_SEQ = b"after-seq"


def scope_of(path: str, metadata: Any, peer: str = "") -> Scope:
    """Return the ASGI scope for the gate. Binary metadata (``-bin``) is not used, but counts towards the size."""
    headers = [
        (name.encode("latin-1"), value if isinstance(value, bytes) else value.encode("utf-8"))
        for name, value in metadata or ()
    ]
    client = _client(peer)
    return {"type": "http", "path": path, "query_string": b"", "headers": headers, "client": client}


def _client(peer: str) -> tuple[str, int] | None:
    """Return the address and port of a gRPC peer: ipv4:192.0.2.1:50051, ipv6:%5B2001:db8::1%5D:50051."""
    kind, _, rest = unquote(peer).partition(":")
    address, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return address.strip("[]"), int(port)


def query_of(scope: Scope) -> dict[str, str]:
    """Return the query parameter afterSeq, taken from the metadata ``after-seq``."""
    after = header(scope, AFTER_SEQ)
    return {} if after is None else {"afterSeq": after}


def pairs(headers: tuple[tuple[bytes, bytes], ...]) -> tuple[tuple[str, str], ...]:
    """Return response headers as metadata, whose values are plain ASCII."""
    return tuple((name.decode("ascii"), _plain(value)) for name, value in headers)


def _plain(value: bytes) -> str:
    return "".join(letter if " " <= letter <= "~" else "?" for letter in value.decode("latin-1"))
