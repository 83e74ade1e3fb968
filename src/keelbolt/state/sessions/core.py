"""Shared by the parts of a session: its tasks, the runs in this process, and the storing of tasks and updates."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from keelbolt.errors import LeaseLost
from keelbolt.kernel import Operation
from keelbolt.state.sessions.process import Member, SessionProcess, SessionRun
from keelbolt.state.sessions.runtime import SteeringInbox
from keelbolt.state.sessions.storage import SessionStorage
from keelbolt.state.sessions.tasks import SessionLimits, TaskRegistry, is_over
from keelbolt.state.sessions.telemetry import Telemetry
from keelbolt.state.sessions.updates import UpdateFeed
from keelbolt.state.types.tasks import TaskState, TaskStatus, UpdateType

if TYPE_CHECKING:
    from keelbolt.state.store import StateStore


class SessionCore:
    """Internal state of a session."""

    def __init__(
        self, member: Member, session_id: str, store: StateStore, limits: SessionLimits, telemetry: Telemetry
    ) -> None:
        self.member = member
        self.session_id = session_id
        self.store = store
        self.types = store.types
        self.limits = limits
        self.telemetry = telemetry
        self.process = SessionProcess.of(store, lease_seconds=limits.lease_seconds)
        self.ground = SessionStorage(store)
        self.registry = TaskRegistry()
        self.feed = UpdateFeed(session_id, store, self.ground)
        self.inboxes: dict[str, SteeringInbox] = {}
        self.handles: dict[str, asyncio.Task[Any]] = {}
        self.awaited: set[str] = set()  # tasks whose caller waits for them
        self.runs: dict[str, SessionRun] = {}  # tasks that this process holds
        self._progressed: set[str] = set()  # tasks whose progress is about to be stored
        self.unowned: set[str] = set()  # tasks that were unfinished when the session was opened and have no holder

    def runs_here(self, task_id: str) -> bool:
        """Return whether this process runs the task."""
        return task_id in self.inboxes

    async def change(self, task_id: str, *, status: TaskStatus | None = None, **fields: Any) -> TaskState | None:
        """Change a task and store it; return None if it is unknown or already finished."""
        bound = None if status is None else self.types.TaskStatus(status.value)
        task = self.registry.change(task_id, status=bound, **fields)
        if task is not None:
            await self.save(task)
        return task

    async def save(self, task: TaskState) -> None:
        """Store a task. Raise LeaseLost if another process has taken it over."""
        run = self.runs.get(task.task_id)
        try:
            await self.store.save_task(task, checks=self.checks(task.task_id))
        except LeaseLost:
            if run is not None:
                self.lose(run)
            raise

    def checks(self, task_id: str) -> tuple[Operation, ...]:
        """Return the checks for each write of the task: the fence under which this process holds it."""
        run = self.runs.get(task_id)
        return run.checks if run is not None else ()

    def lose(self, run: SessionRun) -> None:
        """Remove a task that another process may have taken over: the stored state is now authoritative."""
        if self.runs.get(run.task_id) is run:
            del self.runs[run.task_id]
            self.registry.remove(run.task_id)

    def report_progress(self, task: TaskState, progress: dict[str, Any]) -> None:
        """Store a task's progress in the background; of several reports in a row, the last is stored."""
        self.registry.change(task.task_id, progress=dict(progress))
        if task.task_id not in self._progressed:
            self._progressed.add(task.task_id)
            asyncio.get_running_loop().call_soon(self._save_progress, task)

    def _save_progress(self, task: TaskState) -> None:
        self._progressed.discard(task.task_id)
        if self.registry.get(task.task_id) is task and not is_over(task):
            self.store.save_task(task, checks=self.checks(task.task_id))

    def end_run(self, run: SessionRun | None) -> None:
        """Record that this process no longer runs the task."""
        if run is not None and self.runs.get(run.task_id) is run:
            del self.runs[run.task_id]
            self.process.end(self.ground, run)

    # -------------------------------------------------------------------------------------------------------- reporting

    def report_status(self, task: TaskState, reason: str | None) -> None:
        """Publish the status of a task, with the reason."""
        content = {
            "status": task.status.value,
            "reason": reason,
            "priority": task.priority,
            "task_type": task.task_type.value,
            "progress": task.progress,
        }
        self.report(task.task_id, UpdateType.STATUS_CHANGE, content, trace_id=task.trace_id)

    def notify(self, task_id: str, severity: str, title: str, body: str, *, trace_id: str | None = None) -> None:
        """Publish a notification for the user."""
        content = {"severity": severity, "title": title, "body": body}
        self.report(task_id, UpdateType.NOTIFICATION, content, trace_id=trace_id)

    def report(self, task_id: str, kind: UpdateType, content: Any, **fields: Any) -> Any:
        """Publish an update."""
        update = self.types.StateUpdate(
            session_id=self.session_id,
            task_id=task_id,
            update_type=self.types.UpdateType(kind.value),
            content=content,
            **fields,
        )
        self.feed.publish(update, self.checks(task_id))
        return update
