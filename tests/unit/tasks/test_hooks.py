"""Hooks are told of every end, also of one that no worker brought about."""

from __future__ import annotations

import asyncio

from holdfast.protocol.types import Message, Part, Role, TaskState
from holdfast.storage import open_storage
from holdfast.tasks import LifecycleHooks, TaskContext, TaskEngine, TaskSettings
from holdfast.tasks.families import QUEUE

MESSAGE = Message(message_id="1", role=Role.user, parts=[Part(text="Hello")])


class Told:
    def __init__(self) -> None:
        self.ends: list[tuple[str, TaskState]] = []
        self.hooks = LifecycleHooks(on_terminal=self._ended)

    async def _ended(self, task_id: str, state: TaskState) -> None:
        self.ends.append((task_id, state))


async def test_a_dead_letter_tells_its_end() -> None:
    """A task whose last holder died is ended by the process that finds it, which tells its hooks."""
    told = Told()
    settings = TaskSettings.of(max_attempts=1)

    async def worker(ctx: TaskContext) -> None:
        await ctx.complete()

    async with open_storage("memory:") as kernel:
        async with TaskEngine(kernel, settings=settings) as engine:
            sent = await engine.tasks.send(MESSAGE)
            assert await kernel.claim(QUEUE, "a process that dies", lease_seconds=0.05)
        await asyncio.sleep(0.1)
        async with TaskEngine(kernel, worker, settings=settings, hooks=told.hooks) as engine:
            stored = await engine.tasks.settled(sent, seconds=10)
    assert stored.state is TaskState.failed
    assert told.ends == [(stored.task_id, TaskState.failed)]


async def test_a_cancel_of_a_paused_task_tells_its_end() -> None:
    told = Told()

    async def worker(ctx: TaskContext) -> None:
        await ctx.request_input("What?")

    async with open_storage("memory:") as kernel, TaskEngine(kernel, worker, hooks=told.hooks) as engine:
        stored = await engine.tasks.settled(await engine.tasks.send(MESSAGE), seconds=10)
        await engine.tasks.cancel(stored.task_id)
    assert told.ends == [(stored.task_id, TaskState.canceled)]
