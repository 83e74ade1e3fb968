"""A process keeps no claim of a task that it does not run, whatever fails when a task begins or ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keelbolt.errors import CommitInDoubt, KeelboltError, StateNotSaved, StorageUnreachable
from keelbolt.kernel import Enqueue, Put
from keelbolt.state import StateStore
from keelbolt.state.families import RUNS, TASKS
from keelbolt.state.sessions import OwnedTasks, SessionLimits, StreamingSession, TaskResult, TaskRuntime
from keelbolt.state.sessions.storage import SessionStorage, list_runs
from keelbolt.state.types import TaskContextSnapshot, TaskState, TaskStatus, TaskType

QUICK = SessionLimits(lease_seconds=3.0)  # also a short interval between polls


class FailingCommits:
    """Makes commits fail that write to these collections or queues, before or after they are ``written``."""

    def __init__(self, kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        self.written = False
        self.waits = False
        self.seen = asyncio.Event()
        self._commit = kernel.commit
        monkeypatch.setattr(kernel, "commit", self._fail)

    def _fail(self, partition: str, *operations: Any) -> Any:
        touched = {
            getattr(each, "collection", None) or getattr(each, "queue", None)
            for each in operations
            if isinstance(each, Put | Enqueue) or type(each).__name__ == "Complete"
        }
        return self._answer(partition, operations) if touched & self.names else self._commit(partition, *operations)

    async def _answer(self, partition: str, operations: Any) -> Any:
        receipt = await self._commit(partition, *operations) if self.written else None
        self.seen.set()
        if self.waits:
            await asyncio.sleep(0.3)
            return receipt
        raise CommitInDoubt if self.written else StorageUnreachable


@pytest.fixture
async def failing(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> FailingCommits:
    async def find(kernel: Any) -> FailingCommits:
        return FailingCommits(kernel, monkeypatch)

    return await store.host.ask(find)


async def pipeline(_runtime: TaskRuntime) -> TaskResult:
    return TaskResult(payload=1)


async def no_runs(store: StateStore) -> None:
    """Wait until the storage has no run of the session."""
    async with asyncio.timeout(6):
        while await SessionStorage(store).call(lambda scope: list_runs(scope, "s")):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_an_end_that_could_not_be_stored_is_stored_later(store: StateStore, failing: FailingCommits) -> None:
    """The caller gets the error. When the storage is back, the task is complete and its work item is gone."""
    async with StreamingSession("s", state_store=store, limits=QUICK) as session:

        async def ends_in_an_outage(_runtime: TaskRuntime) -> TaskResult:
            failing.names = {TASKS}
            return TaskResult(payload=1)

        with pytest.raises(StateNotSaved):
            await session.run_task(ends_in_an_outage, task_id="t")
        failing.names = set()
        await no_runs(store)
        assert [task.status for task in await store.list_tasks("s")] == [TaskStatus.COMPLETE]


async def test_a_work_item_that_could_not_be_completed_is_completed_later(
    store: StateStore, failing: FailingCommits
) -> None:
    async with StreamingSession("s", state_store=store, limits=QUICK) as session:

        async def ends_in_an_outage(_runtime: TaskRuntime) -> TaskResult:
            failing.names = {RUNS}
            return TaskResult(payload=1)

        await session.run_task(ends_in_an_outage, task_id="t")
        await failing.seen.wait()
        failing.names = set()
        await no_runs(store)
        assert [task.status for task in await store.list_tasks("s")] == [TaskStatus.COMPLETE]


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("name", [TASKS, RUNS])
async def test_a_task_that_could_not_begin_is_not_held(
    store: StateStore, failing: FailingCommits, name: str, *, written: bool
) -> None:
    """The claim or the first save fails or is in doubt: the task does not run, and does not count as running."""
    async with StreamingSession("s", state_store=store, limits=QUICK) as session:
        failing.names, failing.written = {name}, written
        with pytest.raises(KeelboltError):
            await session.run_task(pipeline, task_id="t")
        failing.names = set()
        await no_runs(store)
        assert [task for task in await store.list_tasks("s") if task.status == TaskStatus.PENDING] == []
        await session.run_task(pipeline, task_id="u")


@pytest.mark.parametrize("name", [TASKS, RUNS])
async def test_a_task_whose_caller_is_cancelled_while_it_begins_is_not_held(
    store: StateStore, failing: FailingCommits, name: str
) -> None:
    async with StreamingSession("s", state_store=store, limits=QUICK) as session:
        failing.names, failing.written, failing.waits = {name}, True, True
        begins = asyncio.ensure_future(session.run_task(pipeline, task_id="t"))
        await failing.seen.wait()
        begins.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begins
        failing.names = set()
        await no_runs(store)
        assert [task for task in await store.list_tasks("s") if task.status == TaskStatus.PENDING] == []


async def test_owned_tasks_are_released_if_a_save_fails(store: StateStore, failing: FailingCommits) -> None:
    """A session of another kind does not save again: the task is failed, and does not run forever."""
    owned = OwnedTasks(store, lease_seconds=QUICK.lease_seconds)
    snapshot = TaskContextSnapshot(session_id="s", task_id="t")
    task = TaskState("t", "s", TaskStatus.RUNNING, TaskType.FOREGROUND, 0, snapshot)
    await owned.save_task(task)
    failing.names = {TASKS}
    task.status = TaskStatus.COMPLETE
    with pytest.raises(StateNotSaved):
        await owned.save_task(task)
    failing.names = set()
    await no_runs(store)
    assert [task.status for task in await store.list_tasks("s")] == [TaskStatus.FAILED]
