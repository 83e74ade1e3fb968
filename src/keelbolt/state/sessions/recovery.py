"""Recovers tasks of dead processes: the process that takes them over fails them or runs them again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keelbolt.state.sessions.notifications import NotificationPayload
from keelbolt.state.sessions.patches import MergeStrategy
from keelbolt.state.sessions.process import SessionRun
from keelbolt.state.sessions.registry import is_over
from keelbolt.state.sessions.results import TaskPipeline
from keelbolt.state.sessions.telemetry import TaskTelemetryEvent
from keelbolt.state.types.tasks import TaskState, TaskStatus, TaskType, UpdateType

if TYPE_CHECKING:
    from keelbolt.state.sessions.core import SessionCore
    from keelbolt.state.sessions.session import StreamingSession
    from keelbolt.state.store import StateStore

PROCESS_DIED = "process died"

Recover = Callable[[TaskState], TaskPipeline | None]
"""Decides about a task of a dead process: a returned pipeline runs it again, None fails it."""

logger = logging.getLogger("keelbolt.state.sessions")


def fail_orphans(_task: TaskState) -> None:
    """The default: fail the task, because its progress is unknown."""


class SessionRecovery:
    """Recovers the tasks of one session."""

    def __init__(
        self, core: SessionCore, choose: Recover, restart: Callable[[TaskState, TaskPipeline, MergeStrategy], Any]
    ) -> None:
        self._core = core
        self._choose = choose
        self._restart = restart

    async def recover(self, run: SessionRun) -> None:
        """Fail this task or run it again; this process already holds it."""
        core = self._core
        if (before := core.handles.get(run.task_id)) is not None:  # this process lost its lease and reclaimed the task
            await asyncio.wait([before], timeout=core.limits.lease_seconds)
        task = core.registry.get(run.task_id)
        if task is None or is_over(task):
            core.process.end(core.ground, run)
            return
        core.runs[run.task_id] = run
        pipeline = self._pipeline(task, run)
        if pipeline is None:
            await self._fail(task, run)
        else:
            await core.process.resume(core.ground, core.member, run)
            self._restart(task, pipeline, MergeStrategy(run.strategy))

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
        core = self._core
        logger.warning("Task %s failed: its process died.", task.task_id)
        await core.change(task.task_id, status=TaskStatus.FAILED, error=PROCESS_DIED)
        core.report_status(task, "process_died")
        if task.task_type == TaskType.BACKGROUND:
            body = f"The process that ran task {task.task_id} died."
            note = NotificationPayload(severity="error", title="Background task failed", body=body)
            content = note.model_dump(mode="json")
            core.report(task.task_id, UpdateType.NOTIFICATION, content, trace_id=task.trace_id)
        core.end_run(run)
        core.telemetry.emit(TaskTelemetryEvent.of(task, "failed", error=PROCESS_DIED))


class OtherSessions:
    """Recovers tasks of sessions that are not open in this process. ``make`` creates such a session."""

    def __init__(self, store: StateStore, make: Callable[[str, StateStore], StreamingSession]) -> None:
        self._store = store
        self._make = make
        self._open: dict[StreamingSession, asyncio.Task[None]] = {}

    async def take(self, run: SessionRun) -> None:
        """Fail the task or run it again."""
        store = self._store if run.tenant == self._store.tenant else self._store.for_tenant(run.tenant)
        session = self._make(run.session_id, store)
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
