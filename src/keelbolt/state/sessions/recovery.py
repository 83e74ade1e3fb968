"""Recovers tasks of dead processes: the process that takes them over fails them or runs them again.

Sessions without leases, such as penguiflow's own, use `OwnedTasks` as their store:

    manager = penguiflow.sessions.SessionManager(state_store=OwnedTasks(StateStore("sqlite:///state.db")))
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keelbolt.errors import LeaseLost
from keelbolt.state.adapters import HybridStateStore
from keelbolt.state.sessions.context import MergeStrategy
from keelbolt.state.sessions.process import SessionProcess
from keelbolt.state.sessions.runner import SessionParts, TaskRunner
from keelbolt.state.sessions.runtime import NotificationPayload, TaskPipeline
from keelbolt.state.sessions.storage import SessionRun, SessionStorage, underlying
from keelbolt.state.sessions.tasks import LEASE_SECONDS, is_over
from keelbolt.state.sessions.telemetry import TaskTelemetryEvent
from keelbolt.state.store import StateStore
from keelbolt.state.types.tasks import TaskState, TaskStatus, TaskType, UpdateType

if TYPE_CHECKING:
    from keelbolt.state.sessions.session import StreamingSession

PROCESS_DIED = "process died"
Recover = Callable[[TaskState], TaskPipeline | None]
"""Decides about a task of a dead process: a returned pipeline runs it again, None fails it."""
logger = logging.getLogger("keelbolt.state.sessions")


def fail_orphans(_task: TaskState) -> None:
    """The default: fail the task, because its progress is unknown."""


class SessionRecovery:
    """Recovers the tasks of one session. ``choose`` decides whether a task runs again."""

    def __init__(self, parts: SessionParts, runner: TaskRunner, choose: Recover) -> None:
        self._parts = parts
        self._runner = runner
        self._choose = choose

    async def recover(self, run: SessionRun) -> None:
        """Fail this task or run it again; this process already holds it."""
        runs = self._parts.runs
        # The task still runs here if this process lost its lease and claimed the task again.
        await self._runner.wait(run.task_id, seconds=self._parts.limits.lease_seconds)
        runs.hold(run)
        task = self._parts.tasks.get(run.task_id)
        if task is None or is_over(task):
            await self._parts.tasks.end_again(run, task)
            return
        pipeline = self._pipeline(task, run)
        if pipeline is None:
            await self._fail(task, run)
        else:
            self._parts.tasks.inbox(run.task_id)  # the recovery of another task does not load a task that runs here
            try:
                await runs.resume(run)
            except BaseException:
                self._parts.tasks.close_inbox(run.task_id)
                raise
            self._runner.start(task, run, pipeline, MergeStrategy(run.strategy))

    def _pipeline(self, task: TaskState, run: SessionRun) -> TaskPipeline | None:
        assert run.claim is not None
        if run.claim.exhausted:
            return None
        try:
            pipeline = self._choose(task)
        except Exception:
            logger.exception("The recovery function raised for task %s; the task fails.", task.task_id)
            return None
        if pipeline is not None:
            attempt = run.claim.attempt
            logger.info("Task %s runs again after its process died, attempt %d.", task.task_id, attempt)
        return pipeline

    async def _fail(self, task: TaskState, run: SessionRun) -> None:
        parts = self._parts
        logger.warning("Task %s failed: its process died.", task.task_id)
        await parts.tasks.change(task.task_id, status=TaskStatus.FAILED, error=PROCESS_DIED)
        parts.updates.report_status(task, "process_died")
        if task.task_type == TaskType.BACKGROUND:
            body = f"The process that ran task {task.task_id} died."
            note = NotificationPayload(severity="error", title="Background task failed", body=body)
            content = note.model_dump(mode="json")
            parts.updates.report(task.task_id, UpdateType.NOTIFICATION, content, trace_id=task.trace_id)
        parts.runs.end(run)
        parts.telemetry.emit(TaskTelemetryEvent.of(task, "failed", error=PROCESS_DIED))


class OtherSessions:
    """Recovers tasks of sessions that are not open in this process. ``make`` creates such a session."""

    def __init__(self, store: StateStore, make: Callable[..., StreamingSession]) -> None:
        self._store = store
        self._make = make
        self._open: dict[StreamingSession, asyncio.Task[None]] = {}

    async def take(self, run: SessionRun) -> None:
        """Fail the task or run it again."""
        store = self._store if run.tenant == self._store.tenant else self._store.for_tenant(run.tenant)
        session = self._make(run.session_id, state_store=store)
        try:
            await session.take(run)
        finally:
            self._open[session] = asyncio.get_running_loop().create_task(self._finish(session, store))

    async def close(self) -> None:
        """Release the tasks that still run for other processes."""
        for session in list(self._open):
            session.leave_tasks()
        await asyncio.gather(*self._open.values(), return_exceptions=True)

    async def _finish(self, session: StreamingSession, store: StateStore) -> None:
        await session.finish()
        self._open.pop(session, None)
        if store is not self._store:
            await store.close()


class OwnedTasks:
    """A StateStore whose running tasks have leases; it forwards everything else to the given store.

    Without leases, tasks stay RUNNING for ever if their process dies, and count against the limits of their session.
    When a lease ends, another process that uses such a store fails the task.
    """

    session_id = None

    def __init__(self, store: StateStore | HybridStateStore, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._all = store
        self._store = underlying(store)
        self.tenant = self._store.tenant
        self._storage = SessionStorage(self._store)
        self._process = SessionProcess.of(self._store, lease_seconds=lease_seconds)
        self._runs: dict[tuple[str, str], SessionRun | None] = {}  # None: the lease was lost
        with contextlib.suppress(RuntimeError):  # without a running loop, the first call does this
            asyncio.get_running_loop()
            self._process.enter(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._all, name)

    async def save_task(self, state: TaskState) -> None:
        """Save the task; this process holds it until it ends. Raise LeaseLost if another process holds it."""
        key, over = (state.session_id, state.task_id), is_over(state)  # read now: the state may change during an await
        run = self._runs.get(key)
        begins = run is None and not over
        if run is None and key in self._runs:
            raise LeaseLost
        if begins:
            self._process.enter(self)
            run = await self._process.begin(self._storage, self, state, MergeStrategy.APPEND.value)
            if run is not None:
                self._runs[key] = run
        try:
            await self._store.save_task(state, checks=run.checks if run is not None else ())
        except LeaseLost:
            raise
        except BaseException:  # the caller does not run the task: another save of it may never come
            if run is not None and (begins or over) and self._runs.get(key) is run:
                del self._runs[key]
                self._process.give_back(run)
            raise
        if over and run is not None and self._runs.pop(key, None) is run:
            self._process.end(self._storage, run)

    async def list_tasks(self, session_id: str) -> Sequence[TaskState]:
        """Return the tasks of a session. Tasks of dead processes are failed first."""
        self._process.enter(self)
        await self._process.settle(self._storage, session_id)
        tasks: Sequence[TaskState] = await self._store.list_tasks(session_id)
        return tasks

    def steered(self, event: Any) -> None:
        """Do nothing: sessions of other kinds receive their controls in their own way."""

    def lost(self, run: SessionRun) -> None:
        """Refuse further saves of the task."""
        key = (run.session_id, run.task_id)
        if self._runs.get(key) is run:
            self._runs[key] = None

    async def take(self, run: SessionRun) -> None:
        """Fail a task of a dead process."""
        store = self._store if run.tenant == self.tenant else self._store.for_tenant(run.tenant)
        try:
            for task in await store.list_tasks(run.session_id):
                if task.task_id == run.task_id and not is_over(task):
                    await _fail(store, task, run)
            self._process.end(SessionStorage(store), run)
        finally:
            if store is not self._store:
                await store.close()


async def _fail(store: StateStore, task: TaskState, run: SessionRun) -> None:
    types = store.types
    task.update_status(types.TaskStatus(TaskStatus.FAILED.value))
    task.error = PROCESS_DIED
    await store.save_task(task, checks=run.checks)
    update = types.StateUpdate(
        session_id=task.session_id,
        task_id=task.task_id,
        trace_id=task.trace_id,
        update_type=types.UpdateType(UpdateType.STATUS_CHANGE.value),
        content={"status": task.status.value, "reason": "process_died"},
    )
    store.save_update(update, checks=run.checks)
