"""Forks: reading the log of the original task."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.errors import TaskNotFoundError
from keelbolt.tasks import TaskContext, TaskEngine
from keelbolt.tasks.manager import forked
from keelbolt.tasks.sweep import erase_task
from tests.integration.tasks.stage import message


async def worker(ctx: TaskContext) -> None:
    await ctx.complete("done")


async def test_a_task_that_is_erased_meanwhile_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of an erased task is empty, and reading would never end."""
    async with TaskEngine.on("memory:", worker) as engine:
        sent = await engine.tasks.send(message())
        await engine.tasks.settled(sent)
        task = await engine.store.load(sent.task.scope, sent.task.task_id)
        await erase_task(engine.store, task.scope, task.task_id)
        reads = 0
        read_log = engine.kernel.read_log

        async def counted(*args: Any, **more: Any) -> Any:
            nonlocal reads
            reads += 1
            assert reads < 10, "it reads for ever"
            return await read_log(*args, **more)

        monkeypatch.setattr(engine.kernel, "read_log", counted)
        with pytest.raises(TaskNotFoundError):
            await forked(task, task.version)
