"""Agents on loopback for the client: ours, and one written with the official SDK."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext
from keelbolt.tasks.settings import TaskSettings

CARD = AgentCardConfig(
    name="Echo",
    description="Says it again",
    capabilities=CapabilitiesConfig(streaming=True, push_notifications=True),
)

COMBINATIONS = [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3")]


async def echo(ctx: TaskContext) -> None:
    """Executes the first word of the message."""
    word, _, rest = ctx.user_text.partition(" ")
    if word == "stream":
        count, _, pause = rest.partition(" ")
        for number in range(int(count)):
            await ctx.emit_text_artifact(f"{number} ", append=number > 0, last_chunk=number == int(count) - 1)
            if pause:
                await asyncio.sleep(float(pause))
        await ctx.complete()
    elif word == "wait":
        while not ctx.is_cancelled:  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(0.02)
    elif word == "ask" and not ctx.history:
        await ctx.request_input("Which one?")
    elif word == "fail":
        await ctx.fail("It does not work.")
    elif word == "say":
        await ctx.reply_directly(rest)
    else:
        await ctx.complete(f"You said: {ctx.user_text}")


@asynccontextmanager
async def serving(app: Any, port: int = 0) -> AsyncIterator[str]:
    """Serve an ASGI application by a real server in this loop; return its URL."""
    bound = socket.socket(proto=socket.IPPROTO_TCP)  # only then does asyncio disable Nagle's algorithm
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    running = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        async with asyncio.timeout(20):
            while not server.started:
                assert not running.done()
                await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait([running], timeout=10)
        bound.close()


@asynccontextmanager
async def our_agent(
    storage: str = "memory:", card: AgentCardConfig = CARD, *, port: int = 0, **options: Any
) -> AsyncIterator[str]:
    options.setdefault("task_settings", TaskSettings.of(cancel_seconds=1.0))
    server = A2AServer(worker=echo, agent_card=card, storage=storage, **options)
    async with serving(server.app, port) as url:
        try:
            yield url
        finally:
            server.drain()


# ------------------------------------------------------------------------------------------------- the official SDK


def sdk_agent(url: str) -> Any:
    """The same agent, as the official SDK serves it: both versions, JSON-RPC at / and REST at the root."""
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.events import EventQueue
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes.agent_card_routes import create_agent_card_routes
    from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
    from a2a.server.routes.rest_routes import create_rest_routes
    from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
    from a2a.types import a2a_pb2
    from starlette.applications import Starlette

    class Echo(AgentExecutor):
        async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
            text = context.get_user_input()
            word, _, rest = text.partition(" ")
            assert context.task_id is not None
            assert context.context_id is not None
            if context.current_task is None:
                task = a2a_pb2.Task(id=context.task_id, context_id=context.context_id)
                task.status.state = a2a_pb2.TaskState.TASK_STATE_SUBMITTED
                await event_queue.enqueue_event(task)
            updater = TaskUpdater(event_queue, context.task_id, context.context_id)
            await updater.start_work()
            if word == "stream":
                count, _, pause = rest.partition(" ")
                for number in range(int(count)):
                    await updater.add_artifact(
                        [a2a_pb2.Part(text=f"{number} ")],
                        artifact_id="numbers",
                        append=number > 0,
                        last_chunk=number == int(count) - 1,
                    )
                    await asyncio.sleep(float(pause or 0))
            elif word == "wait":
                await asyncio.sleep(600)
            elif word == "ask" and context.current_task is None:
                await updater.requires_input(updater.new_agent_message([a2a_pb2.Part(text="Which one?")]))
                return
            await updater.complete(updater.new_agent_message([a2a_pb2.Part(text=f"You said: {text}")]))

        async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
            assert context.task_id is not None
            assert context.context_id is not None
            await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    card = a2a_pb2.AgentCard(name="Official", description="Says it again", version="1.0.0")
    card.capabilities.streaming = True
    card.capabilities.push_notifications = True
    card.default_input_modes.append("text/plain")
    card.default_output_modes.append("text/plain")
    for version in ("1.0", "0.3"):
        for binding in ("JSONRPC", "HTTP+JSON"):
            place = f"{url}/" if binding == "JSONRPC" else url
            card.supported_interfaces.add(url=place, protocol_binding=binding, protocol_version=version)
    handler = DefaultRequestHandler(
        agent_executor=Echo(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        push_config_store=InMemoryPushNotificationConfigStore(),
    )
    return Starlette(
        routes=[
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True),
            *create_rest_routes(handler, enable_v0_3_compat=True),
        ]
    )


@asynccontextmanager
async def official_agent() -> AsyncIterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    async with serving(sdk_agent(f"http://127.0.0.1:{port}"), port) as url:
        yield url
