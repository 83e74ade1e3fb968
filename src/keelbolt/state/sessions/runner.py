"""Runs the tasks of a session: checks limits, takes the context snapshot, runs the pipeline and stores the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from keelbolt.errors import SessionLimitReached, SteeringCancelled
from keelbolt.state.sessions.context import MergeStrategy, Propagation, take_snapshot
from keelbolt.state.sessions.process import SessionRun, list_runs
from keelbolt.state.sessions.runtime import SteeringInbox, TaskPipeline, TaskResult, TaskRuntime
from keelbolt.state.sessions.tasks import is_over
from keelbolt.state.sessions.telemetry import TaskTelemetryEvent
from keelbolt.state.types.tasks import TaskContextSnapshot, TaskState, TaskType

if TYPE_CHECKING:
    from keelbolt.state.sessions.core import SessionCore
    from keelbolt.state.sessions.live_context import PatchManager
import logging
import time
from typing import TYPE_CHECKING

from keelbolt.errors import LeaseLost
from keelbolt.state.sessions.runtime import NotificationAction, NotificationPayload, Severity
from keelbolt.state.sessions.telemetry import Outcome
from keelbolt.state.types.tasks import TaskStatus, UpdateType

if TYPE_CHECKING:
    from keelbolt.state.sessions.core import SessionCore
    from keelbolt.state.sessions.live_context import PatchManager

NO_PARENT = "foreground"
logger = logging.getLogger("keelbolt.state.sessions")


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


class Execution:
    """One run of a task in this process."""

    def __init__(
        self,
        core: SessionCore,
        patches: PatchManager,
        runtime: TaskRuntime,
        pipeline: TaskPipeline,
        strategy: MergeStrategy,
    ) -> None:
        self._core = core
        self._patches = patches
        self._runtime = runtime
        self._pipeline = pipeline
        self._strategy = strategy
        self._run = core.runs.get(runtime.state.task_id)
        self._began: float | None = None

    @property
    def _task(self) -> TaskState:
        return self._runtime.state

    async def run(self, turns: asyncio.Semaphore | None) -> TaskResult:
        """Wait for a turn, run the pipeline and store the outcome. Errors of the pipeline are raised."""
        try:
            await self._runtime.steering.wait_if_paused()
            if turns is not None and turns.locked():
                self._core.report_status(self._task, "queued")
            async with turns or contextlib.nullcontext():
                return await self._work()
        except asyncio.CancelledError:
            if self._lost:
                raise LeaseLost from None
            await self._end(TaskStatus.CANCELLED, "cancelled", error="cancelled", extra={"reason": "cancelled"})
            raise
        except LeaseLost:
            logger.warning("Task %s stopped: another process may have taken it over.", self._task.task_id)
            raise
        except Exception as error:
            if self._lost:
                raise LeaseLost from error
            await self._failed(error)
            raise
        finally:
            self._core.end_run(self._run)

    @property
    def _lost(self) -> bool:
        """Whether another process may have taken over the task."""
        return self._run is not None and self._core.runs.get(self._task.task_id) is not self._run

    async def _work(self) -> TaskResult:
        self._began = time.monotonic()
        await self._core.change(self._task.task_id, status=TaskStatus.RUNNING)
        self._stop_if_over()
        self._core.report_status(self._task, "running")
        async with asyncio.timeout(self._core.limits.max_task_runtime_s or None):
            result = TaskResult.of(await self._pipeline(self._runtime))
        self._stop_if_over()
        patch_id = await self._merge(result)
        await self._complete(result, patch_id)
        return result

    def _stop_if_over(self) -> None:
        """Raise if the task is lost or finished: a cancelled task stays cancelled, whatever its pipeline returns."""
        if self._lost:
            raise LeaseLost
        if is_over(self._task):
            raise SteeringCancelled(self._runtime.steering.cancel_reason or self._task.error)

    async def _merge(self, result: TaskResult) -> str | None:
        if result.context_patch is None:
            return None
        checks = self._core.checks(self._task.task_id)
        return await self._patches.apply(result.context_patch, self._strategy, payload=result.payload, checks=checks)

    async def _complete(self, result: TaskResult, patch_id: str | None) -> None:
        task = self._task
        patch = result.context_patch
        if await self._core.change(task.task_id, status=TaskStatus.COMPLETE, result=result.payload) is None:
            self._stop_if_over()
        content = {
            "digest": result.digest,
            "payload": result.payload,
            "artifacts": result.artifacts,
            "sources": result.sources,
            "task_patch": patch.model_dump(mode="json") if patch is not None else None,
            "patch_id": patch_id,
        }
        self._core.report(task.task_id, UpdateType.RESULT, content, trace_id=task.trace_id)
        notification = result.notification
        if notification is not None:
            self._runtime.notify(notification if patch_id is None else _with_action(notification, patch_id, task))
        self._core.report_status(task, "complete")
        if self._in_background and task.context_snapshot.notify_on_complete and notification is None:
            self._notify("info", "Background task complete", f"Task {task.task_id} completed.")
        self._tell("completed")

    async def _failed(self, error: Exception) -> None:
        if type(error).__name__ == SteeringCancelled.__name__:  # penguiflow's planner raises its own class
            reason = str(getattr(error, "reason", None) or error)
            await self._end(TaskStatus.CANCELLED, "cancelled", error=reason, extra={"reason": reason})
            if self._in_background:
                self._notify("warning", "Background task cancelled", reason)
        elif isinstance(error, TimeoutError):
            await self._end(TaskStatus.FAILED, "timeout", error="timeout", extra={"error": "timeout"})
        else:
            logger.error("Task %s failed: %r", self._task.task_id, error, exc_info=error)
            shown = {"error": str(error), "error_type": type(error).__name__}
            self._core.report(self._task.task_id, UpdateType.ERROR, shown, trace_id=self._task.trace_id)
            await self._end(TaskStatus.FAILED, "failed", error=str(error), extra=shown)
            if self._in_background:
                self._notify("error", "Background task failed", str(error))

    async def _end(self, status: TaskStatus, reason: str, *, error: str, extra: dict[str, Any]) -> None:
        """End the task. If it has already ended, it keeps that end and its reason."""
        task = self._task
        known = task.error if is_over(task) else None
        changed = await self._core.change(task.task_id, status=status, error=known or error)
        if changed is not None and (known is None or reason != "cancelled"):
            self._core.report_status(task, reason)
        outcome: Outcome = "cancelled" if task.status == TaskStatus.CANCELLED else "failed"
        self._tell(outcome, **extra)

    @property
    def _in_background(self) -> bool:
        return self._task.task_type == TaskType.BACKGROUND

    def _notify(self, severity: Severity, title: str, body: str) -> None:
        self._runtime.notify(NotificationPayload(severity=severity, title=title, body=body))

    def _tell(self, outcome: Outcome, **extra: Any) -> None:
        took = None if self._began is None else (time.monotonic() - self._began) * 1000
        self._core.telemetry.emit(TaskTelemetryEvent.of(self._task, outcome, duration_ms=took, **extra))


def _with_action(notification: NotificationPayload, patch_id: str, task: TaskState) -> NotificationPayload:
    button = NotificationAction(
        id="apply_context_patch",
        label="Apply to conversation",
        payload={"patch_id": patch_id, "task_id": task.task_id},
    )
    return notification.model_copy(update={"actions": [*notification.actions, button]})
