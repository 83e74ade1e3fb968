"""Takeover of tasks of dead processes during a backlog, and of processes that get SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from keelbolt.auth.principal import Principal
from keelbolt.kernel import Kernel, open_storage
from keelbolt.tasks import Envelope, TaskContext, TaskEngine, TaskSettings
from tests.faults.conftest import Figures
from tests.faults.processes import Children
from tests.faults.task_pool import Pool
from tests.faults.task_worker import LEASE_SECONDS, SETTINGS, message

TAKEOVER_SECONDS = 1.0  # after the lease's end
HELD = 5
APART = Envelope(
    principal=Principal(tenant="apart", owner="held")
)  # tenants take turns, so it does not wait for others


async def fill(engine: TaskEngine, count: int) -> None:
    """Create a backlog of tasks that have not begun."""
    for first in range(0, count, 100):
        numbers = range(first, min(first + 100, count))
        await asyncio.gather(*(engine.tasks.send(message(f"backlog-{number}", "echo")) for number in numbers))


async def test_orphans_are_taken_over_before_anything_new_is_begun(
    tmp_path: Path, children: Children, task_url: str
) -> None:
    """The next free process claims the tasks of a dead process before any waiting task."""
    pool = Pool(children, tmp_path, task_url)
    order: list[str] = []
    enough = asyncio.Event()

    async def work(ctx: TaskContext) -> None:
        order.append(ctx.user_text)
        await ctx.complete()
        if len(order) == 3 * HELD:
            enough.set()

    async with open_storage(task_url) as kernel:
        async with TaskEngine(kernel, settings=SETTINGS) as engine:
            holder = await pool.start()
            await asyncio.gather(*(engine.tasks.send(message(f"{number}", "hold")) for number in range(HELD)))
            await pool.noted("held", HELD)
            holder.kill()
            await fill(engine, 300)
        await asyncio.sleep(1.2 * LEASE_SECONDS)
        alone = TaskSettings(concurrency=1, lease_seconds=30, heartbeat_seconds=10)
        async with TaskEngine(kernel, work, settings=alone):
            await enough.wait()
    assert order[:HELD] == ["hold"] * HELD
    assert set(order[HELD:]) == {"echo"}


@pytest.mark.timeout(1800)
async def test_takeover_beside_a_backlog(
    tmp_path: Path, children: Children, figures: Figures, full: bool, some_task_url: str
) -> None:
    """Processes that are busy with a backlog take over the tasks of a killed process."""
    backlog, rounds = (10_000, 12) if full else (300, 1)
    pool = Pool(children, tmp_path, some_task_url, concurrency=HELD)
    times: list[float] = []
    async with open_storage(some_task_url) as kernel, TaskEngine(kernel, settings=SETTINGS) as engine:
        for number in range(rounds):
            holder = await pool.start()
            held = [await engine.tasks.send(message(f"{number}-{each}", "hold"), APART) for each in range(HELD)]
            keys = {each.task.record.task_id for each in held}
            await pool.noted("held", (number + 1) * HELD)
            await fill_up(kernel, engine, backlog)
            others = [await pool.start() for _ in range(2)]
            holder.kill()
            killed = time.monotonic()
            second = await taken_over(pool, keys)
            times += [at - killed for at in second]
            for each in others:
                each.kill()
            pool.remove_dead()
    times.sort()
    p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
    figures(
        f"{kernel.engine}: takeover beside {backlog:,} tasks",
        takeovers=len(times),
        s_p50=times[len(times) // 2],
        s_p99=p99,
        s_lease=LEASE_SECONDS,
    )
    assert len(times) == rounds * HELD
    if full:
        assert p99 <= LEASE_SECONDS + TAKEOVER_SECONDS


async def fill_up(kernel: Kernel, engine: TaskEngine, count: int) -> None:
    """Create tasks until at least this many wait."""
    stats = await kernel.stats()
    waiting = stats.work.get("tasks", {}).get("waiting", 0)
    start = time.monotonic_ns()
    for first in range(0, count - waiting, 100):
        texts = [f"{start}-{number}" for number in range(first, first + 100)]
        await asyncio.gather(*(engine.tasks.send(message(text, "echo")) for text in texts))


async def taken_over(pool: Pool, tasks: set[str]) -> list[float]:
    """Wait until all of these tasks were begun for the second time. Return when."""
    async with asyncio.timeout(60):
        while True:
            times: dict[str, list[float]] = {task: [] for task in tasks}
            for note in pool.notes("run"):
                if note["task"] in tasks:
                    times[note["task"]].append(note["at"])
            if all(len(each) >= 2 for each in times.values()):
                return [each[1] for each in times.values()]
            await asyncio.sleep(0.1)  # notes have their own times


async def test_sigterm_releases_the_tasks(
    tmp_path: Path, children: Children, figures: Figures, full: bool, task_url: str
) -> None:
    """After SIGTERM a process claims no more work, releases its tasks at once without counting an attempt, and ends."""
    pool = Pool(children, tmp_path, task_url, lease=60.0)
    async with open_storage(task_url) as kernel, TaskEngine(kernel, settings=SETTINGS) as engine:
        first = await pool.start()
        held = [await engine.tasks.send(message(f"{number}", "wait")) for number in range(HELD)]
        keys = {each.task.record.task_id for each in held}
        await pool.noted("held", HELD)
        await pool.start()
        signalled = time.monotonic()
        first.send(signal.SIGTERM)
        second = await taken_over(pool, keys)
        assert await asyncio.to_thread(first.line) == "drained"
        ended = time.monotonic() - signalled
        assert first.wait() == 0
        for each in held:
            await engine.tasks.settled(each)
        attempts = {note["attempt"] for note in pool.notes("run") if note["task"] in keys}
    slowest = max(second) - signalled - SETTINGS.drain_seconds
    figures(f"{kernel.engine}: SIGTERM", s_until_taken_over_after_the_grace=slowest, s_until_its_end=ended)
    assert attempts == {1}
    if full:
        assert slowest < 1.0
