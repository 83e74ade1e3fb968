"""Many tasks in one store: a page of a list, and the first claim after a start."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from benchmarks.renamed import recorded_commits, renamed
from benchmarks.report import Report
from benchmarks.tasks_echo import message
from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.kernel import Kernel, Operation, new_id, open_storage
from keelbolt.protocol.types import timestamp
from keelbolt.tasks import TaskContext, TaskEngine, TaskSettings, TaskState
from keelbolt.tasks.families import FAMILIES
from keelbolt.tasks.listing import ListTasksQuery
from keelbolt.tasks.notes import StatusNote
from keelbolt.tasks.record import CurrentTurn, TaskRecord

Progress = Callable[[str], None]

STEP = 500  # tasks in one commit
CONTEXT_TASKS = 10
START = 1_800_000_000_000_000  # microseconds since 1970
SECOND = 1_000_000
STATES = (TaskState.completed, TaskState.working, TaskState.failed, TaskState.completed)


# --------------------------------------------------------------------------------------------------------------- lists


async def measure_lists(report: Report, folder: str, small: int, large: int, progress: Progress) -> None:
    """Measure pages of a small and a large store in turns: all tasks, and tasks of one state, including totals."""
    few, many = Principal(owner="few"), Principal(owner="many")
    async with (
        open_storage(f"sqlite:///{folder}/lists.db", declare=FAMILIES) as kernel,
        TaskEngine(kernel) as engine,
    ):
        await fill_records(kernel, few.partition, small, progress)
        await fill_records(kernel, many.partition, large, progress)

        async def page(principal: Principal, count: int) -> None:
            for status in (None, TaskState.completed):
                query = ListTasksQuery(status=status, history_length=0)
                found = await engine.tasks.list(query, principal)
                assert len(found.tasks) == 50
                assert found.total_size == (count if status is None else count // 2)

        one, other = [], []
        for _ in range(100):
            one.append(await _seconds(page(many, large)))
            other.append(await _seconds(page(few, small)))
    name = f"a page of tasks and its total, of {large:,} ÷ of {small:,}"
    report.at_most(name, statistics.median(one) / statistics.median(other), "×", 2)


async def _seconds(work: Awaitable[object]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


async def fill_records(kernel: Kernel, partition: str, count: int, progress: Progress) -> None:
    waiting: list[Awaitable[object]] = []
    for first in range(0, count, STEP):
        waiting.append(kernel.commit(partition, *(_record(number).insert() for number in range(first, first + STEP))))
        if len(waiting) == 8:
            await asyncio.gather(*waiting)
            waiting.clear()
            if first % 50_000 < STEP * 8:
                progress(f"lists: {first:,} of {count:,} tasks")
    await asyncio.gather(*waiting)


def _record(number: int) -> TaskRecord:
    state, at = STATES[number % len(STATES)], START + number * SECOND
    status = StatusNote.of(state, timestamp(at)).status
    context = f"context-{number // CONTEXT_TASKS}"
    return TaskRecord(new_id(), context, state, status, at, at, CurrentTurn(1, f"message-{number}"))


# ------------------------------------------------------------------------------------------------------------ start-up


async def measure_start(report: Report, folder: str, small: int, large: int, progress: Progress) -> None:
    """Measure the time from opening the store to the first turn, with few and many waiting tasks, in turns."""
    few, many = f"sqlite:///{folder}/start-few.db", f"sqlite:///{folder}/start-many.db"
    await fill_waiting(few, small, progress)
    await fill_waiting(many, large, progress)
    one, other = [], []
    for _ in range(9):
        other.append(await first_claim(few))
        one.append(await first_claim(many))
    report.note(f"start-up to the first claim, {large:,} unfinished tasks", 1000 * statistics.median(one), "ms")
    name = f"start-up to the first claim, {large:,} unfinished tasks ÷ {small:,}"
    report.at_most(name, statistics.median(one) / statistics.median(other), "×", 3)


async def fill_waiting(url: str, count: int, progress: Progress) -> None:
    """Write tasks that were sent and never started, in the commits of a send."""
    async with open_storage(url, declare=FAMILIES) as kernel, TaskEngine(kernel) as engine:
        first = message()
        with recorded_commits(kernel) as commits:
            sent = await engine.tasks.send(first)
        (create,) = commits
        old = (first.message_id, sent.task.record.task_id, sent.task.record.context_id)
        waiting: list[Awaitable[object]] = []
        for number in range(1, count):
            operations: tuple[Operation, ...] = renamed(create, {each: new_id() for each in old})
            waiting.append(kernel.commit(ANONYMOUS.partition, *operations))
            if len(waiting) == STEP:
                await asyncio.gather(*waiting)
                waiting.clear()
                if number % 10_000 < STEP:
                    progress(f"start-up: {number:,} of {count:,} tasks")
        await asyncio.gather(*waiting)


async def first_claim(url: str) -> float:
    begun = asyncio.Event()

    async def wait(_: TaskContext) -> None:
        begun.set()
        await asyncio.sleep(3600)

    settings = TaskSettings(concurrency=1, drain_seconds=0.0)
    start = time.perf_counter()
    async with open_storage(url) as kernel, TaskEngine(kernel, wait, settings=settings):
        await begun.wait()
        return time.perf_counter() - start
