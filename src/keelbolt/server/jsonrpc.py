"""The JSON-RPC binding: one endpoint for both versions; the method name determines the version."""

from __future__ import annotations

from itertools import chain

from starlette.types import Receive, Scope, Send

from keelbolt.errors import ProtocolError
from keelbolt.kernel import new_id
from keelbolt.protocol import dialect, jsonrpc, v1
from keelbolt.protocol.codec import CODECS
from keelbolt.protocol.errors import jsonrpc_v03, jsonrpc_v1
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import Request
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server.caller import Caller
from keelbolt.server.dispatch import Dispatcher, explain, failure_headers
from keelbolt.server.gate import RequestGuard, echoed, issuing, query_of, resumed, shown_secrets
from keelbolt.server.http import ClientGone, check_content_type, header_list, parsed, read_body, respond, while_there
from keelbolt.server.sse import Streams, respond_event

HTTP_FAILURES = frozenset({401, 408, 413, 415, 429, 431, 503})
"""Errors that also set the HTTP status; every other JSON-RPC error has status 200."""


class JsonRpc:
    """Serves POST /."""

    def __init__(self, gate: RequestGuard, dispatcher: Dispatcher, streams: Streams) -> None:
        self._gate = gate
        self._dispatcher = dispatcher
        self._streams = streams
        self._limits = dispatcher.service.settings.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: jsonrpc.JsonRpcCall | None = None
        version: ProtocolVersion | None = None
        try:
            query = query_of(scope)
            check_content_type(scope)
            principal = await self._gate.principal(scope)
            body = await read_body(scope, receive, self._limits.body_bytes, self._limits.body_seconds)
            asked = self._gate.asked(scope, query)
            version = asked[0] if asked else None
            call = await parsed(len(body), jsonrpc.parse, body, limits=self._limits)
            operation, named = call.resolve()
            version = self._gate.version((named,), asked)
            caller = self._gate.caller(principal, scope, query, version)
            request = await parsed(len(body), self._decode, operation, version, call)
            del body  # the request may take long; free its bytes
            if operation.streams:
                caller = resumed(caller, call.params)
                await self._stream(scope, receive, send, call, request, caller, version)
                return
            codec = (
                dialect.PLAIN_LIST
                if operation is Operation.list_tasks and version is ProtocolVersion.v0_3
                else CODECS[version]
            )
            base = self._dispatcher.cards.base(scope)
            issued = issuing()
            answer = await while_there(receive, self._dispatcher.answer(operation, request, caller, codec, base))
            headers = (*echoed(scope, caller), *shown_secrets(issued))
            await respond(send, 200, jsonrpc.result(call.id, answer), headers=headers)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - every failure gets a response
            await self._fail(scope, send, error, call, version)

    def _decode(self, operation: Operation, version: ProtocolVersion, call: jsonrpc.JsonRpcCall) -> Request:
        if version is ProtocolVersion.v1_0:
            return v1.decode(operation, call.params, limits=self._limits)
        return dialect.decode(operation, call.params, limits=self._limits, new_id=new_id)

    async def _stream(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        call: jsonrpc.JsonRpcCall,
        request: Request,
        caller: Caller,
        version: ProtocolVersion,
    ) -> None:
        failed = jsonrpc_v1 if version is ProtocolVersion.v1_0 else jsonrpc_v03
        await self._streams.serve(
            receive,
            send,
            self._dispatcher.events(request, caller, CODECS[version], self._dispatcher.cards.base(scope)),
            frame=lambda data: jsonrpc.result(call.id, data),
            failed=lambda error: jsonrpc.error(call.id, failed(explain(error))),
            headers=chain(echoed(scope, caller), shown_secrets(issuing())),
            who=caller.principal,
        )

    def _assumed(self, scope: Scope) -> ProtocolVersion:
        """Return the version for an error before the method is known: the header's, or 0.3 without one."""
        try:
            asked = self._gate.asked(scope, query_of(scope))
        except ProtocolError:  # the version or the query is invalid
            asked = (ProtocolVersion.v1_0,)
        return next(
            iter(asked), ProtocolVersion.v0_3 if ProtocolVersion.v0_3 in self._gate.versions else ProtocolVersion.v1_0
        )

    async def _fail(
        self,
        scope: Scope,
        send: Send,
        error: Exception,
        call: jsonrpc.JsonRpcCall | None,
        version: ProtocolVersion | None,
    ) -> None:
        failure = explain(error)
        request_id = call.id if call is not None else getattr(error, "request_id", b"null")
        if version is None:
            version = self._assumed(scope)
        write = jsonrpc_v03 if version is ProtocolVersion.v0_3 else jsonrpc_v1
        status = failure.row.http if failure.row.http in HTTP_FAILURES else 200
        body = jsonrpc.error(request_id, write(failure))
        if (
            status == 200
            and version is ProtocolVersion.v0_3
            and "text/event-stream" in (header_list(scope, b"accept") or "")
        ):
            await respond_event(send, body)  # 0.3 clients that asked for a stream can't read anything else
        else:
            await respond(send, status, body, headers=failure_headers(error))
