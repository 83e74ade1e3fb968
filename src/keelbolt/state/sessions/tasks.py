"""The tasks of a session in this process: their states and inboxes, the runs that the process holds, and the limits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keelbolt.errors import KeelboltError, LeaseLost, SessionLimitReached
from keelbolt.kernel import Operation
from keelbolt.state.events.steering import MAX_STEERING_PAYLOAD_BYTES
from keelbolt.state.sessions.process import Member, SessionProcess
from keelbolt.state.sessions.runtime import SteeringInbox
from keelbolt.state.sessions.storage import SessionRun, SessionStorage, list_runs
from keelbolt.state.types.tasks import SteeringEvent, TaskState, TaskStatus, TaskType, utc_now

if TYPE_CHECKING:
    from keelbolt.state.store import StateStore

LEASE_SECONDS = 15.0
NOT_STARTED = "not started"  # error of a task that could not be stored
FINAL = frozenset({TaskStatus.COMPLETE, TaskStatus.FAILED, TaskStatus.CANCELLED})


@dataclass(slots=True)
class SessionLimits:
    """Limits of one session. 0 or None means no limit.

    ``max_tasks_per_session`` and ``max_background_tasks`` count unfinished tasks, ``max_concurrent_tasks`` the tasks
    that run in this process at the same time; the others wait for a turn. A process that does not renew its lease for
    ``lease_seconds`` counts as dead, and its tasks are recovered (the first session of a store sets this value).
    """

    max_tasks_per_session: int = 8
    max_background_tasks: int = 4
    max_concurrent_tasks: int = 3
    max_task_runtime_s: float | None = 900
    steering_queue_size: int = 200
    max_pending_patches: int = 32
    max_steering_payload_bytes: int = MAX_STEERING_PAYLOAD_BYTES
    max_steering_events_per_task: int = 512
    lease_seconds: float = LEASE_SECONDS


def is_over(task: TaskState) -> bool:
    """Return whether the task's status is final."""
    return task.status in FINAL


class TaskRegistry:
    """Tasks in order of creation. A finished task does not change."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskState] = {}
        self._children: dict[str, list[str]] = {}
        self._parent: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: TaskState) -> TaskState:
        """Add a task or replace its state."""
        known = task.task_id in self._tasks
        self._tasks[task.task_id] = task
        parent = task.context_snapshot.spawned_from_task_id
        if not known and parent and parent != task.task_id:
            self._parent[task.task_id] = parent
            self._children.setdefault(parent, []).append(task.task_id)
        return task

    def seed(self, tasks: Iterable[TaskState]) -> None:
        """Add stored tasks; known tasks are newer and stay."""
        for task in tasks:
            if task.task_id not in self._tasks:
                self.add(task)

    def get(self, task_id: str) -> TaskState | None:
        """Return the task, or None."""
        return self._tasks.get(task_id)

    def tasks(self, *, status: TaskStatus | None = None) -> list[TaskState]:
        """Return all tasks, or those with a status."""
        return [task for task in self._tasks.values() if status is None or task.status == status]

    def active(self, task_type: TaskType | None = None) -> Iterator[TaskState]:
        """Yield the unfinished tasks."""
        for task in self._tasks.values():
            if not is_over(task) and (task_type is None or task.task_type == task_type):
                yield task

    def remove(self, task_id: str) -> None:
        """Remove a task. Its children keep their place in the tree."""
        if self._tasks.pop(task_id, None) is not None and (parent := self._parent.pop(task_id, None)):
            self._children[parent].remove(task_id)

    def parent(self, task_id: str) -> str | None:
        """Return the id of the task that spawned it."""
        return self._parent.get(task_id)

    def children(self, task_id: str) -> tuple[str, ...]:
        """Return the ids of the tasks that it spawned, in order."""
        return tuple(self._children.get(task_id, ()))

    def to_cancel(self, task_id: str) -> list[TaskState]:
        """Return the descendants that a cancel reaches. It stops at isolated and finished tasks."""
        reached: list[TaskState] = []
        seen, waiting = {task_id}, [task_id]
        while waiting:
            for child_id in self.children(waiting.pop()):
                child = self._tasks.get(child_id)
                if child_id in seen or child is None:
                    continue
                seen.add(child_id)
                if child.context_snapshot.propagate_on_cancel == "isolate" or is_over(child):
                    continue
                reached.append(child)
                waiting.append(child_id)
        return reached

    def change(self, task_id: str, *, status: TaskStatus | None = None, **fields: Any) -> TaskState | None:
        """Change a task; return None if it is unknown, or if it is finished and the status differs."""
        task = self._tasks.get(task_id)
        if task is None or (is_over(task) and status != task.status):
            return None
        for name, value in fields.items():
            if value is not None:
                setattr(task, name, value)
        if status is not None:
            task.status = status
        task.updated_at = utc_now()
        return task


class SessionRuns:
    """The tasks of one session that this process holds under its lease."""

    def __init__(self, member: Member, session_id: str, storage: SessionStorage, process: SessionProcess) -> None:
        self._member = member
        self._session_id = session_id
        self._storage = storage
        self._process = process
        self._runs: dict[str, SessionRun] = {}

    def enter(self) -> None:
        """Register the session in this process, which then also takes over tasks of dead processes."""
        self._process.enter(self._member)

    async def leave(self) -> None:
        """Unregister the session. The lease ends with the last session of the process."""
        await self._process.leave(self._member)

    async def stored(self) -> Sequence[SessionRun]:
        """Return the tasks of the session that any process runs, or that lost their process."""
        none: Sequence[SessionRun] = ()
        return await self._storage.attempt(lambda scope: list_runs(scope, self._session_id), none, "list_runs")

    async def take_over(self, stored: Sequence[SessionRun] | None = None) -> None:
        """Take over the tasks of this session from dead processes, and wait until they are recovered."""
        await self._process.settle(self._storage, self._session_id, stored)

    async def pass_on(self, event: SteeringEvent) -> bool:
        """Send a control to the process that runs the task; return False if there is none."""
        return await self._process.pass_on(self._storage, event)

    async def begin(self, task: TaskState, strategy: str) -> SessionRun | None:
        """Claim a new task. Raise LeaseLost if another process holds it. Return None for a task without a lease."""
        run = await self._process.begin(self._storage, self._member, task, strategy)
        if run is not None:
            self._runs[task.task_id] = run
        return run

    def hold(self, run: SessionRun) -> None:
        """Hold a task that this process has taken over."""
        self._runs[run.task_id] = run

    async def resume(self, run: SessionRun) -> None:
        """Follow the inbox of a task that was taken over and runs again."""
        await self._process.resume(self._storage, self._member, run)

    def held(self) -> list[SessionRun]:
        """Return the runs that this process holds."""
        return list(self._runs.values())

    def get(self, task_id: str) -> SessionRun | None:
        """Return the run of the task, or None if this process does not hold it."""
        return self._runs.get(task_id)

    def holds(self, run: SessionRun) -> bool:
        """Return whether this process still holds this run of the task."""
        return self._runs.get(run.task_id) is run

    def checks(self, task_id: str) -> tuple[Operation, ...]:
        """Return the checks for each write of the task: the fence under which this process holds it."""
        run = self._runs.get(task_id)
        return run.checks if run is not None else ()

    def end(self, run: SessionRun) -> None:
        """Complete the work item of a task that this process holds."""
        if self.lose(run):
            self._process.end(self._storage, run)

    def lose(self, run: SessionRun) -> bool:
        """Remove a run that another process may have taken over; return False if it is not held."""
        if not self.holds(run):
            return False
        del self._runs[run.task_id]
        return True

    def give_back(self, run: SessionRun) -> None:
        """Release the task for another process."""
        self._process.give_back(run)


class SessionTasks:
    """The tasks of one session: their states, which it stores, and the inboxes of the tasks that run here."""

    def __init__(self, session_id: str, store: StateStore, runs: SessionRuns, limits: SessionLimits) -> None:
        self._session_id = session_id
        self._store = store
        self._runs = runs
        self._limits = limits
        self._registry = TaskRegistry()
        self._inboxes: dict[str, SteeringInbox] = {}
        self._progressed: set[str] = set()  # tasks whose progress is about to be stored
        self._failing: set[asyncio.Task[None]] = set()  # store the end of tasks that could not begin
        self._unsaved: set[str] = set()  # tasks whose end could not be stored
        self._unowned: set[str] = set()  # tasks that were unfinished when the session was opened and have no holder

    @property
    def registry(self) -> TaskRegistry:
        """The tasks that this process knows."""
        return self._registry

    def restore(self, tasks: Iterable[TaskState], runs: Iterable[SessionRun]) -> None:
        """Use the stored tasks and runs of a session that is opened."""
        self._registry.seed(tasks)
        self._unowned = {task.task_id for task in self._registry.active()} - {run.task_id for run in runs}

    def get(self, task_id: str) -> TaskState | None:
        """Return the task as this process knows it, or None."""
        return self._registry.get(task_id)

    async def load(self, task_id: str) -> TaskState | None:
        """Return the current state of the task, wherever it runs, or None."""
        if not self._is_current(task_id):
            await self.refresh()
        return self._registry.get(task_id)

    async def refresh(self) -> None:
        """Load the stored tasks. Finished tasks, and tasks that run here, are known and stay."""
        for task in await self._store.list_tasks(self._session_id):
            if not self._is_current(task.task_id):
                self._registry.add(task)

    def _is_current(self, task_id: str) -> bool:
        known = self._registry.get(task_id)
        return known is not None and (is_over(known) or self.runs_here(task_id))

    async def ensure_capacity(self, task_type: TaskType) -> None:
        """Raise SessionLimitReached if the session can't have another task of this type, counting all processes."""
        limits = self._limits
        runs = await self._runs.stored()
        ended = {task.task_id for task in self._registry.tasks() if is_over(task)}
        active = {run.task_id: run.task_type for run in runs if run.task_id not in ended}
        for task in self._registry.active():
            if self.runs_here(task.task_id) or task.task_id in self._unowned:
                active[task.task_id] = task.task_type.value
        if limits.max_tasks_per_session and len(active) >= limits.max_tasks_per_session:
            raise SessionLimitReached("task_limit_exceeded", limits.max_tasks_per_session)
        background = sum(kind == TaskType.BACKGROUND.value for kind in active.values())
        if task_type == TaskType.BACKGROUND and 0 < limits.max_background_tasks <= background:
            raise SessionLimitReached("background_task_limit_exceeded", limits.max_background_tasks)

    # ---------------------------------------------------------------------------------------------------------- changes

    async def add(self, task: TaskState, strategy: str) -> SessionRun | None:
        """Claim a new task for this process, store it and open its inbox. Return its run, which may be lost already."""
        self._registry.add(task)
        try:
            run = await self._runs.begin(task, strategy)
            await self._save(task)
        except BaseException:
            self._discard(task)
            raise
        self._open_inbox(task.task_id)
        return run

    def _discard(self, task: TaskState) -> None:
        """Complete the work item of a task that could not be stored, or whose caller was cancelled."""
        run = self._runs.get(task.task_id)
        if run is None:
            self._registry.remove(task.task_id)
            return
        failed = self._store.types.TaskStatus(TaskStatus.FAILED.value)
        self._registry.change(task.task_id, status=failed, error=NOT_STARTED)
        failing = asyncio.get_running_loop().create_task(self._fail(task, run), name="session-discard")
        self._failing.add(failing)
        failing.add_done_callback(self._failing.discard)

    async def _fail(self, task: TaskState, run: SessionRun) -> None:
        with contextlib.suppress(KeelboltError):  # logged; the work item is released, and the end stored again
            await self._save(task)
        with contextlib.suppress(KeelboltError):
            self.end(run)

    async def change(self, task_id: str, *, status: TaskStatus | None = None, **fields: Any) -> TaskState | None:
        """Change a task and store it; return None if it is unknown or already finished."""
        bound = None if status is None else self._store.types.TaskStatus(status.value)
        task = self._registry.change(task_id, status=bound, **fields)
        if task is not None:
            await self._save(task)
        return task

    async def _save(self, task: TaskState) -> None:
        run = self._runs.get(task.task_id)
        try:
            await self._store.save_task(task, checks=self._runs.checks(task.task_id))
        except LeaseLost:
            if run is not None:
                self.lose(run)
            raise
        except BaseException:
            if is_over(task):
                self._unsaved.add(task.task_id)
            raise
        self._unsaved.discard(task.task_id)

    def end(self, run: SessionRun) -> None:
        """Complete the work item of a task; release it if the end of the task could not be stored."""
        if run.task_id not in self._unsaved:
            self._runs.end(run)
        elif self._runs.lose(run):
            self._runs.give_back(run)

    async def end_again(self, run: SessionRun, task: TaskState | None) -> None:
        """Complete the work item of a task that ended here, after its end is stored."""
        if task is not None:
            await self._save(task)
        self._runs.end(run)

    def lose(self, run: SessionRun) -> None:
        """Remove a task that another process may have taken over: the stored state is now authoritative."""
        if self._runs.lose(run):
            self._registry.remove(run.task_id)

    def change_progress(self, task: TaskState, progress: dict[str, Any]) -> None:
        """Store a task's progress in the background; of several reports in a row, the last is stored."""
        self._registry.change(task.task_id, progress=dict(progress))
        if task.task_id not in self._progressed:
            self._progressed.add(task.task_id)
            asyncio.get_running_loop().call_soon(self._save_progress, task)

    def _save_progress(self, task: TaskState) -> None:
        self._progressed.discard(task.task_id)
        if self._registry.get(task.task_id) is task and not is_over(task):
            self._store.save_task(task, checks=self._runs.checks(task.task_id))

    # ---------------------------------------------------------------------------------------------------------- inboxes

    def runs_here(self, task_id: str) -> bool:
        """Return whether this process runs the task."""
        return task_id in self._inboxes

    def inbox(self, task_id: str) -> SteeringInbox:
        """Return the inbox of a task that runs here, or open it: from now on the task runs here."""
        return self._inboxes.get(task_id) or self._open_inbox(task_id)

    def _open_inbox(self, task_id: str) -> SteeringInbox:
        inbox = self._inboxes[task_id] = SteeringInbox(maxsize=self._limits.steering_queue_size)
        return inbox

    def close_inbox(self, task_id: str) -> None:
        """Remove the inbox: the task no longer runs here."""
        self._inboxes.pop(task_id, None)

    def deliver(self, event: SteeringEvent) -> bool:
        """Put a control into the inbox of its task; return False if the task does not run here or has no room."""
        inbox = self._inboxes.get(event.task_id)
        return inbox is not None and inbox.put(event)
