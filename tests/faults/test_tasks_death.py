"""How long the tasks of a killed process wait for another one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from keelbolt.kernel import open_storage
from keelbolt.tasks import TaskEngine
from tests.faults.conftest import Figures
from tests.faults.processes import Children
from tests.faults.task_pool import Pool
from tests.faults.task_worker import SETTINGS, message
from tests.faults.test_tasks_takeover import taken_over

HELD = 3
LEASES = {"sqlite": 60.0}  # SQLite's worker locks reveal the death; other engines wait for the end of the lease
OTHER_LEASE = 2.0


@pytest.mark.timeout(600)
async def test_tasks_of_a_killed_process_continue(
    tmp_path: Path, children: Children, figures: Figures, full: bool, task_url: str
) -> None:
    """kill -9: another process runs the tasks, on SQLite long before the lease ends."""
    engine_name = task_url.partition(":")[0]
    lease = LEASES.get(engine_name, OTHER_LEASE)
    rounds = 20 if full or engine_name in LEASES else 2
    pool = Pool(children, tmp_path, task_url, lease=lease)
    times: list[float] = []
    async with open_storage(task_url) as kernel, TaskEngine(kernel, settings=SETTINGS) as engine:
        holder = await pool.start()
        for number in range(rounds):
            held = [await engine.tasks.send(message(f"{number}-{each}", "hold")) for each in range(HELD)]
            await pool.noted("held", (number + 1) * HELD)
            heir = await pool.start()
            holder.kill()
            killed = time.monotonic()
            times += [at - killed for at in await taken_over(pool, {each.task.record.task_id for each in held})]
            for each in held:
                assert (await engine.tasks.settled(each)).view.state.name == "completed"
            pool.remove_dead()
            holder = heir
    times.sort()
    figures(
        f"{kernel.engine}: kill -9 until another process runs the task",
        kills=rounds,
        takeovers=len(times),
        s_p50=times[len(times) // 2],
        s_p99=times[min(len(times) - 1, int(len(times) * 0.99))],
        s_max=times[-1],
        s_lease=lease,
    )
    assert times[-1] < (lease / 4 if engine_name in LEASES else lease + 20)


async def test_a_single_process_restarted_on_its_file_continues_at_once(
    tmp_path: Path, children: Children, figures: Figures
) -> None:
    """The restarted process does not wait for the lease of the killed one."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    pool = Pool(children, tmp_path, url, lease=60.0)
    async with open_storage(url) as kernel, TaskEngine(kernel, settings=SETTINGS) as engine:
        await pool.start()
        sent = await engine.tasks.send(message("1", "hold"))
        await pool.noted("held", 1)
    pool.kill_one()
    await pool.start()
    started = time.monotonic()
    (at,) = await taken_over(pool, {sent.task.record.task_id})
    figures("sqlite: a process restarted on its file", s_until_the_task_runs=at - started)
    assert at - started < 15
    assert len(list((tmp_path / "tasks.db-workers").iterdir())) == 1  # the new process's own lock
