"""Starts the tasks of a session: checks limits, takes the context snapshot, and runs the pipeline."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from keelbolt.errors import SessionLimitReached, SteeringCancelled
from keelbolt.state.sessions.execution import Execution
from keelbolt.state.sessions.inbox import SteeringInbox
from keelbolt.state.sessions.patches import MergeStrategy
from keelbolt.state.sessions.process import SessionRun, list_runs
from keelbolt.state.sessions.registry import is_over
from keelbolt.state.sessions.results import TaskPipeline, TaskResult, TaskRuntime
from keelbolt.state.sessions.snapshots import Propagation, take_snapshot
from keelbolt.state.sessions.telemetry import TaskTelemetryEvent
from keelbolt.state.types.tasks import TaskContextSnapshot, TaskState, TaskType

if TYPE_CHECKING:
    from keelbolt.state.sessions.core import SessionCore
    from keelbolt.state.sessions.merging import PatchManager

NO_PARENT = "foreground"


class TaskOptions(TypedDict, total=False):
    """Options for starting a task; all are optional.

    ``task_type`` defaults to FOREGROUND; ``merge_strategy`` determines how its result is merged into the context
    (default: APPEND); ``propagate_on_cancel`` is "cascade" or "isolate"; without ``context_snapshot``, a snapshot of
    the session's context is taken.
    """

    task_type: TaskType
    priority: int
    context_snapshot: TaskContextSnapshot | None
    description: str | None
    spawn_reason: str | None
    parent_task_id: str | None
    spawned_from_event_id: str | None
    query: str | None
    task_id: str | None
    trace_id: str | None
    merge_strategy: MergeStrategy
    propagate_on_cancel: Propagation
    notify_on_complete: bool


class Launcher:
    """Starts the tasks of one session. ``runtime`` creates the argument of a pipeline."""

    def __init__(
        self,
        core: SessionCore,
        patches: PatchManager,
        runtime: Callable[[TaskState, SteeringInbox], TaskRuntime],
    ) -> None:
        self._core = core
        self._patches = patches
        self._runtime = runtime
        self._creating = asyncio.Lock()
        limit = core.limits.max_concurrent_tasks
        self._turns = asyncio.Semaphore(limit) if limit > 0 else None
        self.foreground: str | None = None

    async def create(self, options: TaskOptions, recover: Callable[[], Any]) -> TaskState:
        """Create and store a pending task that this process holds. ``recover`` is called if a limit is reached."""
        core = self._core
        kind = options.get("task_type", TaskType.FOREGROUND)
        async with self._creating:
            try:
                await self.ensure_capacity(kind)
            except SessionLimitReached:
                await recover()
                await self.ensure_capacity(kind)
            await self._patches.refresh()
            task_id = options.get("task_id") or secrets.token_hex(8)
            task: TaskState = core.types.TaskState(
                task_id=task_id,
                session_id=core.session_id,
                status=core.types.TaskStatus.PENDING,
                task_type=core.types.TaskType(kind.value),
                priority=options.get("priority", 0),
                context_snapshot=self._snapshot(task_id, kind, options),
                trace_id=options.get("trace_id"),
                description=options.get("description"),
            )
            core.registry.add(task)
            strategy = options.get("merge_strategy", MergeStrategy.APPEND)
            run = await core.process.begin(core.ground, core.member, task, strategy.value)
            if run is not None:
                core.runs[task_id] = run
            await core.save(task)
            core.inboxes[task_id] = SteeringInbox(maxsize=core.limits.steering_queue_size)
        core.report_status(task, "created")
        core.telemetry.emit(TaskTelemetryEvent.of(task, "spawned"))
        if kind == TaskType.FOREGROUND:
            self.foreground = task_id
        return task

    def start(self, task: TaskState, pipeline: TaskPipeline, strategy: MergeStrategy) -> asyncio.Task[Any]:
        """Run the pipeline in the background."""
        inbox = self._core.inboxes.setdefault(
            task.task_id, SteeringInbox(maxsize=self._core.limits.steering_queue_size)
        )
        execution = Execution(self._core, self._patches, self._runtime(task, inbox), pipeline, strategy)
        handle = asyncio.get_running_loop().create_task(self._run(task, execution), name=f"task:{task.task_id}")
        self._core.handles[task.task_id] = handle
        handle.add_done_callback(_heard)  # its error is stored with the task
        return handle

    async def run(self, task: TaskState, pipeline: TaskPipeline, strategy: MergeStrategy) -> TaskResult:
        """Run the pipeline and wait for it. A cancel goes to its inbox, so that the pipeline can end cleanly."""
        handle = self.start(task, pipeline, strategy)
        self._core.awaited.add(task.task_id)
        try:
            result: TaskResult = await asyncio.shield(handle)
        except asyncio.CancelledError:
            if handle.cancelled() and not _cancelling():
                raise SteeringCancelled(task.error) from None
            handle.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await handle
            raise
        finally:
            self._core.awaited.discard(task.task_id)
        return result

    async def _run(self, task: TaskState, execution: Execution) -> TaskResult:
        try:
            return await execution.run(self._turns)
        finally:
            if self._core.handles.get(task.task_id) is asyncio.current_task():  # otherwise it runs here again
                self._core.inboxes.pop(task.task_id, None)
                self._core.handles.pop(task.task_id, None)

    # ----------------------------------------------------------------------------------------------------------- limits

    async def ensure_capacity(self, task_type: TaskType) -> None:
        """Raise SessionLimitReached if the session can't have another task of this type, counting all processes."""
        core, limits = self._core, self._core.limits
        none: Sequence[SessionRun] = ()
        runs = await core.ground.attempt(lambda scope: list_runs(scope, core.session_id), none, "list_runs")
        ended = {task.task_id for task in core.registry.tasks() if is_over(task)}
        active = {run.task_id: run.task_type for run in runs if run.task_id not in ended}
        for task in core.registry.active():
            if core.runs_here(task.task_id) or task.task_id in core.unowned:
                active[task.task_id] = task.task_type.value
        if limits.max_tasks_per_session and len(active) >= limits.max_tasks_per_session:
            raise SessionLimitReached("task_limit_exceeded", limits.max_tasks_per_session)
        background = sum(kind == TaskType.BACKGROUND.value for kind in active.values())
        if task_type == TaskType.BACKGROUND and 0 < limits.max_background_tasks <= background:
            raise SessionLimitReached("background_task_limit_exceeded", limits.max_background_tasks)

    # -------------------------------------------------------------------------------------------------------- snapshots

    def _snapshot(self, task_id: str, kind: TaskType, options: TaskOptions) -> TaskContextSnapshot:
        core = self._core
        given = options.get("context_snapshot")
        cancel, notify = options.get("propagate_on_cancel", "cascade"), options.get("notify_on_complete", True)
        if given is not None:
            return given.model_copy(
                update={
                    "session_id": core.session_id,
                    "task_id": task_id,
                    "propagate_on_cancel": cancel,
                    "notify_on_complete": notify,
                }
            )
        return take_snapshot(
            self._patches.context,
            kind=core.types.TaskContextSnapshot,
            task_type=kind,
            session_id=core.session_id,
            task_id=task_id,
            spawned_from_task_id=options.get("parent_task_id") or self.foreground or NO_PARENT,
            trace_id=options.get("trace_id"),
            spawned_from_event_id=options.get("spawned_from_event_id"),
            spawn_reason=options.get("spawn_reason"),
            query=options.get("query"),
            propagate_on_cancel=cancel,
            notify_on_complete=notify,
        )


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _heard(handle: asyncio.Task[Any]) -> None:
    if not handle.cancelled():
        handle.exception()
