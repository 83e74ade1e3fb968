"""Recovery for sessions without leases, such as penguiflow's own.

Without leases, tasks stay RUNNING for ever if their process dies, and count against the limits of their session. With
this store, each running task is held under a lease. When the lease ends, another process that uses this store fails the
task.

    manager = penguiflow.sessions.SessionManager(state_store=OwnedTasks(StateStore("sqlite:///state.db")))
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from keelbolt.errors import LeaseLost
from keelbolt.state.hybrid import HybridStateStore
from keelbolt.state.sessions.limits import LEASE_SECONDS
from keelbolt.state.sessions.patches import MergeStrategy
from keelbolt.state.sessions.process import SessionProcess, SessionRun
from keelbolt.state.sessions.recovery import PROCESS_DIED
from keelbolt.state.sessions.registry import is_over
from keelbolt.state.sessions.storage import SessionStorage, underlying
from keelbolt.state.store import StateStore
from keelbolt.state.types.tasks import TaskState, TaskStatus, UpdateType


class OwnedTasks:
    """A StateStore whose tasks have leases; it forwards everything else to the given store."""

    session_id = None

    def __init__(self, store: StateStore | HybridStateStore, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._all = store
        self._store = underlying(store)
        self.tenant = self._store.tenant
        self._ground = SessionStorage(self._store)
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
        if run is None and key in self._runs:
            raise LeaseLost
        if run is None and not over:
            self._process.enter(self)
            run = await self._process.begin(self._ground, self, state, MergeStrategy.APPEND.value)
            if run is not None:
                self._runs[key] = run
        await self._store.save_task(state, checks=run.checks if run is not None else ())
        if over and run is not None and self._runs.pop(key, None) is run:
            self._process.end(self._ground, run)

    async def list_tasks(self, session_id: str) -> Sequence[TaskState]:
        """Return the tasks of a session. Tasks of dead processes are failed first."""
        self._process.enter(self)
        await self._process.settle(self._ground, session_id)
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
