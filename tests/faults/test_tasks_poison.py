"""A task that ends every process that runs it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from keelbolt.auth.principal import ANONYMOUS
from keelbolt.kernel import open_storage
from keelbolt.tasks import TaskEngine, TaskState
from keelbolt.tasks.families import QUEUE
from tests.faults.conftest import Figures
from tests.faults.processes import Children
from tests.faults.task_pool import Pool
from tests.faults.task_verify import MAX_ATTEMPTS, verify_tasks
from tests.faults.task_worker import SETTINGS, message

POISONED = 13


@pytest.mark.timeout(300)
async def test_a_poison_task_is_dead_lettered_and_others_complete(
    tmp_path: Path, children: Children, figures: Figures, some_task_url: str
) -> None:
    """After five dead processes the task is failed and dead-lettered with its reason; all others complete."""
    pool = Pool(children, tmp_path, some_task_url, concurrency=2, codes=(POISONED,))
    others = 0

    async with open_storage(some_task_url) as kernel, TaskEngine(kernel, settings=SETTINGS) as engine:
        poison = await engine.tasks.send(message("poison", "poison"))

        async def supervise() -> None:
            while True:
                await pool.fill(2)
                await asyncio.sleep(0.02)

        supervisor = asyncio.create_task(supervise())
        end = asyncio.create_task(engine.tasks.settled(poison))
        tasks = [poison.task.record.task_id]
        while not end.done():
            assert not supervisor.done()
            sent = await engine.tasks.send(message(f"other-{others}", "work"))
            assert (await engine.tasks.settled(sent)).view.state is TaskState.completed
            tasks.append(sent.task.record.task_id)
            others += 1
        supervisor.cancel()
        ended = await end
        item = await kernel.work(ANONYMOUS.partition, QUEUE, tasks[0])
        verdict = await verify_tasks(kernel, tasks, pool.notes())
        runs = [note for note in pool.notes("run") if note["task"] == tasks[0]]
    figures(f"{kernel.engine}: a poisonous task", dead_processes=pool.kills, others_completed=others, runs=len(runs))
    verdict.assert_clean()
    assert ended.view.state is TaskState.failed
    assert [note["attempt"] for note in runs] == list(range(1, MAX_ATTEMPTS + 1))
    assert item is not None
    assert item.state == "dead"
    assert item.reason
    assert others > 0
