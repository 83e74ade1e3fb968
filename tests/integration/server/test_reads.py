"""The number of reads per operation: nothing is loaded twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from keelbolt import A2AServer, AgentCardConfig, CapabilitiesConfig, TaskContext, Worker
from keelbolt.kernel.memory.engine import MemoryKernel
from keelbolt.protocol.requests import CancelTaskRequest, SendMessageRequest, SubscribeToTaskRequest
from keelbolt.protocol.types import Message, Part, Role
from keelbolt.server.caller import Caller
from keelbolt.server.service import AgentService
from keelbolt.tasks.settings import TaskSettings


class Slow(Worker):
    """A worker that, on request, waits for its cancel."""

    async def handle(self, ctx: TaskContext) -> None:
        if ctx.user_text == "wait":
            await asyncio.sleep(3600)
        await ctx.respond("done")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count reads of records, logs and work items."""
    counts: Counter[str] = Counter()

    def count(name: str) -> None:
        inner: Callable[..., Awaitable[Any]] = getattr(MemoryKernel, name)

        async def counted(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return await inner(*arguments, **named)

        monkeypatch.setattr(MemoryKernel, name, counted)

    for name in ("_get_many", "_read_log", "_log_state", "_work"):
        count(name)
    return counts


def request(text: str) -> SendMessageRequest:
    return SendMessageRequest(message=Message(message_id=text, role=Role.user, parts=[Part(text=text)]))


def agent() -> A2AServer:
    card = AgentCardConfig(
        name="slow", description="slow", version="1", capabilities=CapabilitiesConfig(streaming=True)
    )
    return A2AServer(worker=Slow(), agent_card=card, storage="memory:", task_settings=TaskSettings(drain_seconds=0.0))


async def begun(service: AgentService) -> str:
    """Return the id of a waiting task."""
    events = service.stream(request("wait"), Caller())
    await anext(events)
    working = await anext(events)
    await events.aclose()
    return working.task_id


async def test_a_send_reads_nothing(reads: Counter[str]) -> None:
    async with agent() as server:
        await server.routes.service.send(request("hello"), Caller())
        assert not reads


async def test_a_stream_reads_the_log_of_its_new_task_once(reads: Counter[str]) -> None:
    async with agent() as server:
        items = [item async for item in server.routes.service.stream(request("hello"), Caller())]
        assert [item.kind for item in items] == ["task", "status", "status"]
        assert reads["_get_many"] == 0
        assert reads["_read_log"] <= 2  # for entries committed before the reader came, and when the task ended


async def test_a_subscription_loads_the_task_once(reads: Counter[str]) -> None:
    async with agent() as server:
        service = server.routes.service
        task_id = await begun(service)
        reads.clear()
        events = service.subscribe(SubscribeToTaskRequest(id=task_id), Caller())
        assert (await anext(events)).kind == "task"
        following = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.01)
        assert reads["_get_many"] <= 2  # the record, and its snapshot if there is one
        assert reads["_read_log"] <= 2  # one to load the task and one to follow it
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await events.aclose()


async def test_a_cancel_fetches_the_work_item_once(reads: Counter[str]) -> None:
    async with agent() as server:
        service = server.routes.service
        task_id = await begun(service)
        reads.clear()
        answer = await service.cancel(CancelTaskRequest(id=task_id), Caller())
        assert b"CANCELED" in answer
        assert reads["_work"] == 1
