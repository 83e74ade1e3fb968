"""Processes that resume after their lease has ended: stopped, or blocked by a busy worker."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from keelbolt.auth.principal import ANONYMOUS
from keelbolt.kernel import open_storage
from keelbolt.tasks import TaskEngine, TaskState
from keelbolt.tasks.families import CONTEXTS
from tests.faults.conftest import Figures
from tests.faults.processes import Children
from tests.faults.task_pool import Pool
from tests.faults.task_verify import verify_tasks
from tests.faults.task_worker import SETTINGS, message

REFUSED = {"LeaseLost", "CommitRefused", "TurnEnded", "TaskTerminalStateError"}


@pytest.mark.timeout(900)
async def test_every_write_of_a_stopped_holder_is_refused(
    tmp_path: Path, children: Children, figures: Figures, full: bool, task_url: str
) -> None:
    """A holder that is stopped until others hold its tasks can't write to them afterwards, even if its worker ignores
    cancellation, and even below the engine's own checks.
    """
    rounds, held = (4, 10) if full else (1, 4)
    refused, written = 0, []
    pool = Pool(children, tmp_path, task_url, concurrency=held)
    async with open_storage(task_url) as kernel, TaskEngine(kernel, settings=SETTINGS) as engine:
        tasks: list[str] = []
        for number in range(rounds):
            holder = await pool.start()
            sent = [await engine.tasks.send(message(f"{number}-{each}", "hold")) for each in range(held)]
            tasks += [each.task.record.task_id for each in sent]
            await pool.noted("held", (number + 1) * held)
            holder.send(signal.SIGSTOP)
            holder.stopped()
            successor = await pool.start()
            for each in sent:
                assert (await engine.tasks.settled(each)).view.state is TaskState.completed
            holder.send(signal.SIGCONT)
            holder.tell("go on")
            for _ in sent:
                outcomes = json.loads(holder.line())
                refused += sum(outcome in REFUSED for outcome in outcomes.values())
                written += [name for name, outcome in outcomes.items() if outcome not in REFUSED]
            for each in sent:
                assert await kernel.get(ANONYMOUS.partition, CONTEXTS, each.task.record.context_id) is None
            after = await engine.tasks.send(message(f"{number}-after", "echo"))
            successor.kill()
            assert (await engine.tasks.settled(after)).view.state is TaskState.completed, "it is healthy again"
            holder.kill()
            pool.remove_dead()
        verdict = await verify_tasks(kernel, tasks, pool.notes())
    figures(
        f"{kernel.engine}: SIGSTOP of task workers",
        takeovers=verdict.takeovers,
        stale_writes_refused=refused,
        stale_writes_accepted=len(written),
    )
    assert not written
    verdict.assert_clean()
    assert verdict.takeovers == rounds * held


async def test_a_worker_that_never_yields_loses_its_task_and_not_its_process(
    tmp_path: Path, children: Children, figures: Figures, some_task_url: str
) -> None:
    """Another process takes over the task; late writes of the first process are refused, and it works as before."""
    pool = Pool(children, tmp_path, some_task_url)
    async with open_storage(some_task_url) as kernel, TaskEngine(kernel, settings=SETTINGS) as engine:
        busy = await pool.start()
        done = tmp_path / "done"
        sent = await engine.tasks.send(message("busy", f"busy {done}"))
        await pool.noted("run", 1)
        other = await pool.start()
        ended = await engine.tasks.settled(sent)
        done.touch()
        task = await engine.store.task(ended)
        assert task.artifacts[0].parts[0].text == f"pid {other.pid}"
        (late,) = await pool.noted("late", 1)
        assert late["pid"] == busy.pid
        assert late["error"] in {"LeaseLost", "CancelledError", "TurnEnded"}
        other.kill()
        for number in range(5):
            after = await engine.tasks.settled(await engine.tasks.send(message(f"after-{number}", "echo")))
            assert (await engine.store.task(after)).artifacts[0].parts[0].text == f"pid {busy.pid}"
        verdict = await verify_tasks(kernel, [sent.task.record.task_id], pool.notes())
    figures(f"{kernel.engine}: a worker that never yields", late_write=late["error"], **verdict.numbers())
    verdict.assert_clean()
