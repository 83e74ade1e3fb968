"""Runs operations within the middlewares, and encodes their results and errors; shared by all bindings.

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

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

from msgspec import structs

from keelbolt.auth.principal import Principal
from keelbolt.errors import BusyError, UnsupportedOperationError
from keelbolt.observability.metrics import Metrics
from keelbolt.observability.tracing import CARRIER, Tracing
from keelbolt.protocol import v1
from keelbolt.protocol.codec import WireCodec
from keelbolt.protocol.errors import INTERNAL, WireFailure, describe
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
from keelbolt.protocol.types import PAUSED, TaskState
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server import generation
from keelbolt.server.caller import Caller
from keelbolt.server.cards import Cards
from keelbolt.server.http import Header
from keelbolt.server.service import AgentService
from keelbolt.tasks.files import LINK, with_addresses


def explain(error: Exception) -> WireFailure:
    """Return the failure for the caller; log the details that the caller must not see."""
    failure = describe(error)
    if failure.row is INTERNAL:
        logger.error("a request failed", exc_info=error)
    elif failure.row.http >= 500:
        logger.warning("a request can't be served now: %s", error)
    return failure


def failure_headers(error: Exception) -> tuple[Header, ...]:
    """Return the headers of an error response: the challenge, or when to retry."""
    challenge = getattr(error, "challenge", None)
    if challenge:
        return ((b"www-authenticate", challenge.encode("latin-1", "replace")),)
    if isinstance(error, BusyError):
        return ((b"retry-after", b"%d" % error.retry_after),)
    if getattr(error, "retryable", False):
        return ((b"retry-after", b"5"),)
    return ()


logger = logging.getLogger("keelbolt.server")

NAMELESS_CONFIG = "default"


class Dispatcher:
    """Runs operations for callers, and encodes the results."""

    def __init__(self, service: AgentService, cards: Cards, middlewares: Sequence[Middleware] = ()) -> None:
        self.service = service
        self.cards = cards
        self._middlewares = middlewares

    async def answer(
        self, operation: Operation, request: Request, caller: Caller, codec: WireCodec, base: str
    ) -> bytes:
        """Return the encoded result of an operation that does not stream. ``base``: the URL that the caller used."""
        logger.debug("%s in A2A %s", operation, caller.version)
        caller = caller.in_tenant(request.tenant)
        if not self._middlewares:
            return await self._answer(operation, request, caller, codec, base)
        async with AsyncExitStack() as stack:
            caller = await entered(stack, self._middlewares, operation, request, caller)
            return await self._answer(operation, request, caller, codec, base)

    async def _answer(
        self, operation: Operation, request: Request, caller: Caller, codec: WireCodec, base: str
    ) -> bytes:
        service, at = self.service, self.cards.reached(base)
        match request:
            case SendMessageRequest():
                answer = await service.send(request, caller)
                json = with_addresses(answer.json, at)
                return codec.sent_message(json) if answer.message else codec.sent_task(json)
            case GetTaskRequest():
                return codec.task(with_addresses(await service.get(request, caller), at))
            case ListTasksRequest():
                page = await service.list(request, caller)
                tasks = [with_addresses(task, at) if isinstance(task, bytes) else task for task in page.tasks]
                return codec.task_list(replace(page, tasks=tasks))
            case CancelTaskRequest():
                return codec.task(with_addresses(await service.cancel(request, caller), at))
            case CreatePushConfigRequest():
                scope = await service.push_task(request.task_id, caller)
                config = request.config
                if codec is not v1 and not config.id:  # 0.3: one unnamed config per task, replaced by the next
                    config = config.model_copy(update={"id": NAMELESS_CONFIG})
                return codec.push_config(await service.push.create(scope, request.task_id, config, caller.version))
            case GetPushConfigRequest():
                scope = await service.push_task(request.task_id, caller)
                return codec.push_config(await service.push.get(scope, request.task_id, request.id))
            case ListPushConfigsRequest():
                scope = await service.push_task(request.task_id, caller)
                configs = await service.push.list(
                    scope, request.task_id, page_size=request.page_size, page_token=request.page_token
                )
                return codec.push_config_list(configs)
            case DeletePushConfigRequest():
                scope = await service.push_task(request.task_id, caller)
                await service.push.delete(scope, request.task_id, request.id)
                return codec.deleted()
            case _:
                if operation is Operation.get_extended_card:
                    return await self.cards.extended(
                        caller, base, ProtocolVersion.v1_0 if codec is v1 else ProtocolVersion.v0_3
                    )
                raise UnsupportedOperationError

    async def events(
        self, request: Request, caller: Caller, codec: WireCodec, base: str
    ) -> AsyncGenerator[tuple[bytes, int | None], None]:
        """Yield the events of a stream, each with the seq to resume after. Empty bytes only open the stream."""
        at = self.cards.reached(base)
        sends = isinstance(request, SendMessageRequest)
        operation = Operation.send_streaming_message if sends else Operation.subscribe_to_task
        logger.debug("%s in A2A %s", operation, caller.version)
        caller = caller.in_tenant(request.tenant)
        # A task may continue by itself while its user authenticates elsewhere; in 1.0 the stream stays open for that.
        ends_at = (TaskState.input_required,) if codec is v1 else PAUSED
        async with AsyncExitStack() as stack:
            if self._middlewares:
                caller = await entered(stack, self._middlewares, operation, request, caller)
            if isinstance(request, SendMessageRequest):
                items = self.service.stream(request, caller, ends_at)
            else:
                items = self.service.subscribe(cast("SubscribeToTaskRequest", request), caller, ends_at)
            if generation.in_use(caller):
                items = generation.numbered(self.service.engine, items, caller)
            stack.push_async_callback(items.aclose)
            splice = None
            async for item in items:
                if item.kind == "opened":
                    yield b"", None
                elif item.kind == "task":
                    yield codec.sent_task(with_addresses(item.json, at)), item.seq
                else:
                    splice = splice or codec.EventEncoder(item.task_id, item.context_id)
                    write = splice.artifact_update if item.kind == "artifact" else splice.status_update
                    json = item.json
                    if json.find(LINK) >= 0:  # checked here to save a call: most events are short texts
                        json = with_addresses(json, at)
                    yield write(json), item.seq


# ----------------------------------------------------------------------------------------------------------- middleware


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


class InstrumentedDispatcher(Dispatcher):
    """Counts and traces every operation."""

    def __init__(
        self,
        service: AgentService,
        cards: Cards,
        middlewares: Sequence[Middleware] = (),
        *,
        metrics: Metrics | None,
        tracing: Tracing | None,
    ) -> None:
        super().__init__(service, cards, middlewares)
        self._metrics = metrics
        self._tracing = tracing

    async def answer(
        self, operation: Operation, request: Request, caller: Caller, codec: WireCodec, base: str
    ) -> bytes:
        started, outcome = time.perf_counter(), "ok"
        try:
            with self._span(operation, caller):
                return await super().answer(operation, request, self._carrying(caller), codec, base)
        except Exception as error:
            outcome = describe(error).row.reason
            raise
        finally:
            self._count(operation, outcome, started)

    async def events(
        self, request: Request, caller: Caller, codec: WireCodec, base: str
    ) -> AsyncGenerator[tuple[bytes, int | None], None]:
        sends = isinstance(request, SendMessageRequest)
        operation = Operation.send_streaming_message if sends else Operation.subscribe_to_task
        started, outcome = time.perf_counter(), "ok"
        # The span ends before the first event is sent: a span that stays current while a generator is suspended leaks
        # into other code that runs meanwhile.
        with self._span(operation, caller):
            caller = self._carrying(caller)
        events = super().events(request, caller, codec, base)
        try:
            async for event in events:
                yield event
        except Exception as error:
            outcome = describe(error).row.reason
            raise
        finally:
            await events.aclose()
            self._count(operation, outcome, started)

    def _span(self, operation: Operation, caller: Caller) -> Any:
        if self._tracing is None:
            return nullcontext()
        return self._tracing.span(f"a2a.{operation.value}", "server", parent=caller.trace)

    def _carrying(self, caller: Caller) -> Caller:
        """Return the caller with the trace, which is stored with the turn."""
        if self._tracing is None:
            return caller
        return structs.replace(caller, stored={**caller.stored, CARRIER: self._tracing.carrier()})

    def _count(self, operation: Operation, outcome: str, started: float) -> None:
        if self._metrics is not None:
            self._metrics.request(operation.value, outcome, time.perf_counter() - started)
