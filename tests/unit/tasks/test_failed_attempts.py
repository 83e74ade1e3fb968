"""The attempts of a task that can't be run although the storage works count, and the last one ends the task."""

from __future__ import annotations

import asyncio

import pytest

from keelbolt.errors import StorageCorrupt
from keelbolt.kernel import open_storage
from keelbolt.protocol.types import Message, Part, Role
from keelbolt.tasks import TaskContext, TaskEngine, TaskSettings, TaskState, runner
from keelbolt.tasks.dead import dead_letters
from keelbolt.tasks.run import TaskRun


async def echo(ctx: TaskContext) -> None:
    await ctx.complete()


async def test_a_task_that_can_not_be_read_becomes_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The task fails and becomes a dead letter with the reason, instead of being retried forever."""
    tried = []

    async def damaged(self: TaskRun, message: Message) -> TaskContext:
        tried.append(message.message_id)
        raise StorageCorrupt("a segment is damaged")

    monkeypatch.setattr(TaskRun, "_context", damaged)
    monkeypatch.setattr(TaskRun, "_raised", _reraise)
    monkeypatch.setattr(runner, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.02)
    settings = TaskSettings.of({}, max_attempts=3)
    async with open_storage("memory:") as kernel, TaskEngine(kernel, echo, settings=settings) as engine:
        message = Message(message_id="1", role=Role.user, parts=[Part(text="go")])
        async with asyncio.timeout(20):
            sent = await engine.tasks.send(message)
            task = await engine.tasks.settled(sent)
        assert task.state is TaskState.failed
        assert len(tried) == 3
        [letter] = (await dead_letters(engine.store, sent.task.scope)).letters
        assert letter.reason == "a segment is damaged"


async def _reraise(_run: TaskRun, error: BaseException) -> None:
    raise error
