"""What the parts of a session share: its tasks, who of them runs here, and how they and their updates are stored."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from keelbolt.errors import CommitRefused, LeaseLost, StateNotSaved
from keelbolt.state.sessions.feed import UpdateFeed
from keelbolt.state.sessions.inbox import SteeringInbox
from keelbolt.state.sessions.limits import SessionLimits
from keelbolt.state.sessions.owner import Run
from keelbolt.state.sessions.process import Process
from keelbolt.state.sessions.registry import TaskRegistry, is_over
from keelbolt.state.sessions.telemetry import Telemetry
from keelbolt.state.types.tasks import TaskState, TaskStatus, UpdateType

if TYPE_CHECKING:
    from keelbolt.state.store import StateStore


class SessionCore:
    """The inside of a session."""

    def __init__(self, session_id: str, store: StateStore, limits: SessionLimits, telemetry: Telemetry) -> None:
        self.session_id = session_id
        self.store = store
        self.types = store.types
        self.limits = limits
        self.telemetry = telemetry
        self.process = Process.of(store, lease_seconds=limits.lease_seconds)
        self.ground = self.process.ground
        self.registry = TaskRegistry()
        self.feed = UpdateFeed(session_id, store, self.ground)
        self.inboxes: dict[str, SteeringInbox] = {}
        self.handles: dict[str, asyncio.Task[Any]] = {}
        self.awaited: set[str] = set()  # those whose caller waits for them
        self.runs: dict[str, Run] = {}  # what is written down about those that run here
        self._progressed: set[str] = set()  # those whose progress is about to be stored
        self.unowned: set[str] = set()  # those that were not over when the session was opened, and that nobody runs

    def runs_here(self, task_id: str) -> bool:
        """Whether this process runs the task."""
        return task_id in self.inboxes

    async def change(self, task_id: str, *, status: TaskStatus | None = None, **fields: Any) -> TaskState | None:
        """Change a task and store it; None when there is none, or it is over already."""
        bound = None if status is None else self.types.TaskStatus(status.value)
        task = self.registry.change(task_id, status=bound, **fields)
        if task is not None:
            await self.save(task)
        return task

    async def save(self, task: TaskState) -> None:
        """Store a task. Raises LeaseLost when another process has taken it over."""
        run = self.runs.get(task.task_id)
        try:
            await self.store.save_task(task, checks=(run.held,) if run is not None else ())
        except StateNotSaved as error:
            if run is None or not isinstance(error.__cause__, CommitRefused):
                raise
            self.runs.pop(task.task_id, None)
            self.registry.remove(task.task_id)  # what is stored is another process's word
            raise LeaseLost from error

    def report_progress(self, task: TaskState, progress: dict[str, Any]) -> None:
        """Store how far a task is; nobody waits for it, and of several reports in a row the last is stored."""
        self.registry.change(task.task_id, progress=dict(progress))
        if task.task_id not in self._progressed:
            self._progressed.add(task.task_id)
            asyncio.get_running_loop().call_soon(self._save_progress, task)

    def _save_progress(self, task: TaskState) -> None:
        self._progressed.discard(task.task_id)
        run = self.runs.get(task.task_id)
        if not is_over(task):
            self.store.save_task(task, checks=(run.held,) if run is not None else ())

    def end_run(self, task_id: str) -> None:
        """This process does not run the task any more."""
        run = self.runs.pop(task_id, None)
        if run is not None:
            self.process.end(run)

    # -------------------------------------------------------------------------------------------------------- reporting

    def report_status(self, task: TaskState, reason: str | None) -> None:
        """Tell where a task stands, and why."""
        content = {
            "status": task.status.value,
            "reason": reason,
            "priority": task.priority,
            "task_type": task.task_type.value,
            "progress": task.progress,
        }
        self.report(task.task_id, UpdateType.STATUS_CHANGE, content, trace_id=task.trace_id)

    def notify(self, task_id: str, severity: str, title: str, body: str, *, trace_id: str | None = None) -> None:
        """Tell the user something."""
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
        self.feed.publish(update)
        return update
