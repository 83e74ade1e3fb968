"""Context data that many tasks write concurrently."""

from __future__ import annotations

import asyncio

from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext
from tests.integration.tasks.stage import Stage, ask


async def test_a_hundred_tasks_count(stage: Stage) -> None:
    """A counter that a hundred tasks of two processes increment concurrently ends at a hundred."""

    async def worker(ctx: TaskContext) -> None:
        count = await ctx.update_context(lambda kept: (kept or 0) + 1)
        await ctx.complete_json(count)

    engines = [await stage.engine(worker), await stage.engine(worker)]
    tasks = await asyncio.gather(*(ask(engines[number % 2], context_id="c") for number in range(100)))
    assert {task.status.state for task in tasks} == {TaskState.completed}
    assert sorted(task.artifacts[0].parts[0].data for task in tasks) == list(range(1, 101))
