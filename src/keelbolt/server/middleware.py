"""Middlewares: code around every operation, for all bindings.

    @asynccontextmanager
    async def locale(request: IncomingRequest) -> AsyncIterator[None]:
        request.context["locale"] = request.headers.get("accept-language", "en")    # before: may add, may raise
        yield
        ...                                                                         # after, also when it failed

    A2AServer(worker=…, agent_card=…, middlewares=[locale])

Middlewares are entered in order and exited in reverse. An error that one raises before the operation becomes the
response. A stream stays within its middlewares until it ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from keelbolt.auth.principal import Principal
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import Request
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server.caller import Caller


@dataclass(frozen=True, slots=True)
class IncomingRequest:
    """An authenticated and decoded request. ``context`` becomes ``ctx.request_context`` of the worker."""

    operation: Operation
    principal: Principal
    version: ProtocolVersion
    headers: Mapping[str, str]  # by lower-case name; for gRPC, the metadata
    params: Request
    context: dict[str, Any] = field(default_factory=dict)


Middleware = Callable[[IncomingRequest], AbstractAsyncContextManager[None]]


def pass_headers(*names: str) -> Middleware:
    """Return a middleware that passes on these headers: ``ctx.request_context["accept-language"]``, if sent."""
    wanted = [name.lower() for name in names]

    @asynccontextmanager
    async def passing(request: IncomingRequest) -> AsyncIterator[None]:
        request.context.update({name: request.headers[name] for name in wanted if name in request.headers})
        yield

    return passing


async def entered(
    stack: AsyncExitStack, middlewares: Sequence[Middleware], operation: Operation, params: Request, caller: Caller
) -> Caller:
    """Enter all middlewares, and return the caller with the values that they added."""
    headers: dict[str, str] = {}
    for name, value in caller.headers:
        text = value.decode("latin-1")
        key = name.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    request = IncomingRequest(operation, caller.principal, caller.version, headers, params)
    for middleware in middlewares:
        await stack.enter_async_context(middleware(request))
    return structs.replace(caller, request=request.context)
