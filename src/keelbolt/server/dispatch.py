"""Runs operations and encodes their results; shared by all bindings."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import cast

from keelbolt.errors import UnsupportedOperationError
from keelbolt.protocol import v1
from keelbolt.protocol.codec import WireCodec
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
from keelbolt.server.middleware import Middleware, entered
from keelbolt.server.service import AgentService
from keelbolt.tasks.files import LINK, with_addresses

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
