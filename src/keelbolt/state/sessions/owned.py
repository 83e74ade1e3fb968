"""Recovery for sessions that know no owners, such as penguiflow's own.

Their tasks stay RUNNING for ever when their process dies, and count against the limits of their session. Behind this
store they have owners: a task whose process died has failed when its session is opened the next time.

    manager = penguiflow.sessions.SessionManager(state_store=OwnedTasks(StateStore("sqlite:///state.db")))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keelbolt.errors import CommitRefused, LeaseLost, StateNotSaved
from keelbolt.state.hybrid import HybridStateStore
from keelbolt.state.sessions.ground import underlying
from keelbolt.state.sessions.limits import LEASE_SECONDS
from keelbolt.state.sessions.owner import Run
from keelbolt.state.sessions.patches import MergeStrategy
from keelbolt.state.sessions.process import Process
from keelbolt.state.sessions.recovery import PROCESS_DIED
from keelbolt.state.sessions.registry import is_over
from keelbolt.state.store import StateStore
from keelbolt.state.types.tasks import TaskState, TaskStatus, UpdateType


class OwnedTasks:
    """A StateStore whose tasks have owners; in everything else it is the store that it is given."""

    session_id = ""

    def __init__(self, store: StateStore | HybridStateStore, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._all = store
        self._store = underlying(store)
        self._process = Process.of(self._store, lease_seconds=lease_seconds)
        self._runs: dict[tuple[str, str], Run] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._all, name)

    async def save_task(self, state: TaskState) -> None:
        """Keep a task as it is now; this process owns it until it is over. Raises LeaseLost when another one has it."""
        key, over = (state.session_id, state.task_id), is_over(state)  # now: it may change while this waits
        run = self._runs.get(key)
        if run is None and not over:
            self._process.enter(self)
            run = await self._process.begin(state, MergeStrategy.APPEND.value)
            if run is not None:
                self._runs[key] = run
        try:
            await self._store.save_task(state, checks=(run.held,) if run is not None else ())
        except StateNotSaved as error:
            if run is None or not isinstance(error.__cause__, CommitRefused):
                raise
            raise LeaseLost from error
        if over and self._runs.pop(key, None) is not None and run is not None:
            self._process.end(run)

    async def list_tasks(self, session_id: str) -> Sequence[TaskState]:
        """The tasks of a session. Those that a dead process left behind have failed."""
        self._process.enter(self)
        orphans = await self._process.take_over(session_id)
        tasks: Sequence[TaskState] = await self._store.list_tasks(session_id)
        by_id = {task.task_id: task for task in tasks}
        for run in orphans:
            await self._fail(run, by_id.get(run.task_id))
        return tasks

    def told(self, event: Any) -> None:
        """Nothing: whoever runs these tasks hears of demands in its own way."""

    async def _fail(self, run: Run, task: TaskState | None) -> None:
        if task is not None and not is_over(task):
            types = self._store.types
            task.update_status(types.TaskStatus(TaskStatus.FAILED.value))
            task.error = PROCESS_DIED
            await self._store.save_task(task, checks=(run.held,))
            self._store.save_update(
                types.StateUpdate(
                    session_id=task.session_id,
                    task_id=task.task_id,
                    trace_id=task.trace_id,
                    update_type=types.UpdateType(UpdateType.STATUS_CHANGE.value),
                    content={"status": task.status.value, "reason": "process_died"},
                )
            )
        self._process.end(run)
