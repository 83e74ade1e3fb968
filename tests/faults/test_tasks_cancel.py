"""Cancel against complete, from different processes, many times."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from keelbolt.errors import TaskNotCancelableError
from keelbolt.kernel import open_storage
from keelbolt.tasks import Sent, TaskContext, TaskEngine, TaskSettings, TaskState
from tests.faults.conftest import Figures
from tests.faults.task_verify import verify_tasks
from tests.faults.task_worker import message

IN_FLIGHT = 16
SETTINGS = TaskSettings(concurrency=8, cancel_seconds=0.02)


class Race:
    """Workers that complete and clients that cancel, each after a short delay."""

    def __init__(self) -> None:
        self.dice = random.Random(4)
        self.completed: dict[str, str] = {}  # task → result of the worker's complete
        self.canceled: dict[str, str] = {}  # task → result of the client's cancel
        self.tasks: list[str] = []

    async def work(self, ctx: TaskContext) -> None:
        await asyncio.sleep(self.dice.choice((0, 0, 0.002, 0.01, 0.06)))
        if ctx.is_cancelled and self.dice.random() < 0.5:
            return  # it obeys the cancel
        try:
            await ctx.complete("done")
        except BaseException as error:
            self.completed[ctx.task_id] = type(error).__name__
            raise
        self.completed[ctx.task_id] = "completed"

    async def cancel(self, client: TaskEngine, sent: Sent) -> None:
        task_id = sent.task.record.task_id
        self.tasks.append(task_id)
        await asyncio.sleep(self.dice.choice((0, 0, 0.002, 0.01, 0.06)))
        try:
            ended = await client.tasks.cancel(task_id, seconds=30.0)
        except TaskNotCancelableError as error:
            self.canceled[task_id] = str(error)
        else:
            self.canceled[task_id] = ended.view.state.name


@pytest.mark.timeout(1800)
async def test_cancel_against_complete(figures: Figures, full: bool, some_task_url: str) -> None:
    """Exactly one of them wins: there is one terminal event, and the loser gets an error."""
    rounds = 5000 if full else 200
    race = Race()
    async with (
        open_storage(some_task_url) as kernel,
        open_storage(some_task_url) as others,
        TaskEngine(kernel, race.work, settings=SETTINGS) as engine,
        TaskEngine(others, settings=SETTINGS) as client,
    ):
        limit = asyncio.Semaphore(IN_FLIGHT)

        async def one(number: int) -> None:
            async with limit:
                sender = engine if number % 2 else client
                await race.cancel(client, await sender.tasks.send(message(f"{number}", "race")))

        await asyncio.gather(*map(one, range(rounds)))
        states = {task: (await client.tasks.load(task)).view.state for task in race.tasks}
        verdict = await verify_tasks(kernel, race.tasks, [])
    ends = Counter(state.name for state in states.values())
    figures(f"{kernel.engine}: cancel against complete", **ends, **verdict.numbers())
    verdict.assert_clean()
    assert len(states) == rounds
    for task, state in states.items():
        if state is TaskState.completed:
            assert "completed" in race.canceled[task]
            # A worker that was stopped while its end was written gets no result.
            assert race.completed[task] in ("completed", "CancelledError")
        else:
            assert state is TaskState.canceled
            assert race.canceled[task] == "canceled"
            assert race.completed.get(task) != "completed"
    assert set(ends) == {"completed", "canceled"}, "both can win"
