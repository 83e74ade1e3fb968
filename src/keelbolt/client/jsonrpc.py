"""The JSON-RPC binding."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from itertools import count
from typing import Any

from keelbolt.client.endpoints import AgentEndpoint
from keelbolt.client.failures import from_jsonrpc, from_status
from keelbolt.client.http import Http, Parser, Reply, read_json
from keelbolt.client.transport import (
    Options,
    StreamFrame,
    codec_of,
    decode_answer,
    request_headers,
    task_id_of,
    understood,
)
from keelbolt.errors import A2AResponseError
from keelbolt.protocol import jsonrpc
from keelbolt.protocol.operations import NAMES_V03, Operation
from keelbolt.protocol.requests import Request
from keelbolt.protocol.types import Json
from keelbolt.protocol.versions import ProtocolVersion

_NO_RESULT = Operation.delete_push_config  # the result is null, which some agents omit


class JsonRpcTransport:
    """Sends every operation as a POST to one URL."""

    def __init__(self, http: Http, endpoint: AgentEndpoint) -> None:
        self.endpoint = endpoint
        self._http = http
        self._codec = codec_of(endpoint.version)
        self._ids = count(1)

    async def close(self) -> None:
        """Do nothing; ``http`` owns the connections."""

    async def call(self, operation: Operation, request: Request, options: Options) -> Any:
        number, body = self._body(operation, request)
        headers = request_headers(self.endpoint.version, options)
        reply = await self._http.ask(
            "POST", self.endpoint.url, headers=headers, body=body, seconds=options.seconds, again=options.again
        )
        result = _result(_value(reply), number, reply, task_id_of(request), nothing=operation is _NO_RESULT)
        return decode_answer(self._codec, operation, result)

    @asynccontextmanager
    async def stream(
        self, operation: Operation, request: Request, options: Options
    ) -> AsyncIterator[AsyncGenerator[StreamFrame, None]]:
        number, body = self._body(operation, request)
        headers = request_headers(self.endpoint.version, options)
        headers["Accept"] = "text/event-stream"
        async with (
            self._http.listen("POST", self.endpoint.url, headers=headers, body=body) as opened,
            aclosing(self._frames(opened, number, task_id_of(request), options)) as frames,
        ):
            yield frames

    async def _frames(
        self, opened: Reply | AsyncGenerator[bytes, None], number: int, task_id: str, options: Options
    ) -> AsyncGenerator[StreamFrame, None]:
        if isinstance(opened, Reply):  # an error, or an agent that does not stream
            value = _result(_value(opened), number, opened, task_id)
            yield StreamFrame(understood(self._codec.decode_event, value))
            return
        parser = Parser(self._http.answer_bytes)
        none = Reply(200, {}, b"", self.endpoint.url)
        async with aclosing(opened):
            async for block in opened:
                for event in parser.feed(block):
                    value = _result(read_json(event.data), number, none, task_id)
                    yield StreamFrame(understood(self._codec.decode_event, value), event.id or None)
                options.hints.retry_seconds = parser.retry_seconds or 0.0

    def _body(self, operation: Operation, request: Request) -> tuple[int, bytes]:
        number = next(self._ids)
        method = operation.value if self.endpoint.version is ProtocolVersion.v1_0 else NAMES_V03[operation]
        return number, jsonrpc.request(b"%d" % number, method, self._codec.encode_request(request))


def _value(reply: Reply) -> Json:
    try:
        return reply.json()
    except A2AResponseError:
        if reply.status == 200:
            raise
        raise from_status(reply.status, reply.headers, url=reply.url) from None


def _result(value: Json, number: int, reply: Reply, task_id: str, *, nothing: bool = False) -> Json:
    """Return the result of a response; with ``nothing``, it may be absent. Raise the exception of its error."""
    if isinstance(value, dict):
        if value.get("error") is not None:
            status, headers = reply.status, reply.headers
            raise from_jsonrpc(value["error"], status=status, headers=headers, task_id=task_id, url=reply.url)
        if reply.status == 200 and value.get("jsonrpc") == "2.0" and ("result" in value or nothing):
            if value.get("id") not in (number, str(number)):
                raise A2AResponseError("the agent's response has the id of another request")
            return value.get("result")
    if reply.status != 200:
        raise from_status(reply.status, reply.headers, url=reply.url)
    raise A2AResponseError("the agent's response is JSON but not a JSON-RPC response")
