"""Runs the tasks of a session: checks limits, takes the context snapshot, runs the pipeline and stores the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from keelbolt.errors import LeaseLost, SessionLimitReached, StateNotSaved, SteeringCancelled, StorageClosed
from keelbolt.state.sessions.context import MergeStrategy, Propagation, take_snapshot
from keelbolt.state.sessions.live_context import LiveContext
from keelbolt.state.sessions.runtime import (
    NotificationAction,
    NotificationPayload,
    Severity,
    SteeringInbox,
    TaskPipeline,
    TaskResult,
    TaskRuntime,
)
from keelbolt.state.sessions.storage import SessionRun, SessionStorage
from keelbolt.state.sessions.tasks import SessionLimits, SessionRuns, SessionTasks, is_over
from keelbolt.state.sessions.telemetry import Outcome, TaskTelemetryEvent, Telemetry
from keelbolt.state.sessions.updates import SessionUpdates
from keelbolt.state.types.tasks import TaskContextSnapshot, TaskState, TaskStatus, TaskType, UpdateType

if TYPE_CHECKING:
    from keelbolt.state.store import StateStore

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


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The parts of one session; each owns its state."""

    session_id: str
    store: StateStore
    storage: SessionStorage
    limits: SessionLimits
    runs: SessionRuns
    tasks: SessionTasks
    updates: SessionUpdates
    context: LiveContext
    telemetry: Telemetry


class TaskRunner:
    """Creates and runs the tasks of one session in this process. ``runtime`` creates the argument of a pipeline."""

    def __init__(self, parts: SessionParts, runtime: Callable[[TaskState, SteeringInbox], TaskRuntime]) -> None:
        self._parts = parts
        self._runtime = runtime
        self._creating = asyncio.Lock()
        limit = parts.limits.max_concurrent_tasks
        self._turns = asyncio.Semaphore(limit) if limit > 0 else None
        self._foreground: str | None = None  # the last foreground task
        self._handles: dict[str, asyncio.Task[Any]] = {}
        self._awaited: set[str] = set()  # tasks whose caller waits for them

    def restore(self, tasks: Iterable[TaskState]) -> None:
        """Use the stored tasks of a session that is opened."""
        front = [task.task_id for task in tasks if task.task_type == TaskType.FOREGROUND]
        self._foreground = front[-1] if front else None

    async def create(self, options: TaskOptions) -> tuple[TaskState, SessionRun | None]:
        """Create and store a pending task that this process holds, and return it with its run.

        Raise SessionLimitReached if a limit is reached.
        """
        parts = self._parts
        kind = options.get("task_type", TaskType.FOREGROUND)
        async with self._creating:
            try:
                await parts.tasks.ensure_capacity(kind)
            except SessionLimitReached:  # tasks of other processes may have ended, or lost their process
                await parts.runs.take_over()
                await parts.tasks.refresh()
                await parts.tasks.ensure_capacity(kind)
            await parts.context.refresh()
            types = parts.store.types
            task_id = options.get("task_id") or secrets.token_hex(8)
            task: TaskState = types.TaskState(
                task_id=task_id,
                session_id=parts.session_id,
                status=types.TaskStatus.PENDING,
                task_type=types.TaskType(kind.value),
                priority=options.get("priority", 0),
                context_snapshot=self.snapshot(task_id, kind, options),
                trace_id=options.get("trace_id"),
                description=options.get("description"),
            )
            run = await parts.tasks.add(task, options.get("merge_strategy", MergeStrategy.APPEND).value)
        parts.updates.report_status(task, "created")
        parts.telemetry.emit(TaskTelemetryEvent.of(task, "spawned"))
        if kind == TaskType.FOREGROUND:
            self._foreground = task_id
        return task, run

    def start(
        self, task: TaskState, run: SessionRun | None, pipeline: TaskPipeline, strategy: MergeStrategy
    ) -> asyncio.Task[Any]:
        """Run the pipeline in the background."""
        runtime = self._runtime(task, self._parts.tasks.inbox(task.task_id))
        execution = TaskExecution(self._parts, run, runtime, pipeline, strategy)
        handle = asyncio.get_running_loop().create_task(self._run(task, execution), name=f"task:{task.task_id}")
        self._handles[task.task_id] = handle
        handle.add_done_callback(_retrieve_error)
        return handle

    async def run(
        self, task: TaskState, run: SessionRun | None, pipeline: TaskPipeline, strategy: MergeStrategy
    ) -> TaskResult:
        """Run the pipeline and wait for it. A cancel goes to its inbox, so that the pipeline can end cleanly."""
        handle = self.start(task, run, pipeline, strategy)
        self._awaited.add(task.task_id)
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
            self._awaited.discard(task.task_id)
        return result

    async def _run(self, task: TaskState, execution: TaskExecution) -> TaskResult:
        try:
            return await execution.run(self._turns)
        finally:
            if self._handles.get(task.task_id) is asyncio.current_task():  # otherwise it runs here again
                self._parts.tasks.close_inbox(task.task_id)
                self._handles.pop(task.task_id, None)

    # --------------------------------------------------------------------------------------------------------- stopping

    def running(self) -> list[asyncio.Task[Any]]:
        """Return the asyncio tasks that run pipelines."""
        return list(self._handles.values())

    async def wait(self, task_id: str, *, seconds: float) -> None:
        """Wait until the task does not run here, but at most this long."""
        if (handle := self._handles.get(task_id)) is not None:
            await asyncio.wait([handle], timeout=seconds)

    def stop(self, task_id: str, *, hard: bool = False) -> None:
        """Cancel a spawned task at once. An awaited task is only cancelled if ``hard`` is set."""
        handle = self._handles.get(task_id)
        if handle is not None and (hard or task_id not in self._awaited):
            handle.cancel()

    def lose(self, run: SessionRun) -> None:
        """Stop a task that another process may take over."""
        if self._parts.runs.holds(run):
            self.stop(run.task_id, hard=True)
        self._parts.tasks.lose(run)

    def release(self) -> None:
        """Stop all tasks and release them for other processes."""
        for run in self._parts.runs.held():
            self.lose(run)
            self._parts.runs.give_back(run)

    async def cancel_all(self, reason: str) -> None:
        """Cancel all tasks and store the reason; `running` returns those that have not ended yet."""
        for task_id, handle in list(self._handles.items()):
            with contextlib.suppress(LeaseLost, StateNotSaved, StorageClosed):
                await self._parts.tasks.change(task_id, status=TaskStatus.CANCELLED, error=reason)
            handle.cancel()

    # -------------------------------------------------------------------------------------------------------- snapshots

    def snapshot(self, task_id: str, kind: TaskType, options: TaskOptions) -> TaskContextSnapshot:
        """Return the context snapshot of a new task."""
        parts = self._parts
        given = options.get("context_snapshot")
        cancel, notify = options.get("propagate_on_cancel", "cascade"), options.get("notify_on_complete", True)
        if given is not None:
            return given.model_copy(
                update={
                    "session_id": parts.session_id,
                    "task_id": task_id,
                    "propagate_on_cancel": cancel,
                    "notify_on_complete": notify,
                }
            )
        return take_snapshot(
            parts.context.current,
            kind=parts.store.types.TaskContextSnapshot,
            task_type=kind,
            session_id=parts.session_id,
            task_id=task_id,
            spawned_from_task_id=options.get("parent_task_id") or self._foreground or NO_PARENT,
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


def _retrieve_error(handle: asyncio.Task[Any]) -> None:
    """Retrieve the error, so that asyncio does not log it: it is stored with the task."""
    if not handle.cancelled():
        handle.exception()


class TaskExecution:
    """One run of a task in this process. ``run`` is None for a task without a lease."""

    def __init__(
        self,
        parts: SessionParts,
        run: SessionRun | None,
        runtime: TaskRuntime,
        pipeline: TaskPipeline,
        strategy: MergeStrategy,
    ) -> None:
        self._parts = parts
        self._runtime = runtime
        self._pipeline = pipeline
        self._strategy = strategy
        self._run = run
        self._began: float | None = None

    @property
    def _task(self) -> TaskState:
        return self._runtime.state

    async def run(self, turns: asyncio.Semaphore | None) -> TaskResult:
        """Wait for a turn, run the pipeline and store the outcome. Errors of the pipeline are raised."""
        try:
            await self._runtime.steering.wait_if_paused()
            if turns is not None and turns.locked():
                self._parts.updates.report_status(self._task, "queued")
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
            if self._run is not None:
                self._parts.tasks.end(self._run)

    @property
    def _lost(self) -> bool:
        """Whether another process may have taken over the task."""
        return self._run is not None and not self._parts.runs.holds(self._run)

    async def _work(self) -> TaskResult:
        self._began = time.monotonic()
        self._stop_if_over()  # the lease may have been lost since the task was created
        await self._parts.tasks.change(self._task.task_id, status=TaskStatus.RUNNING)
        self._stop_if_over()
        self._parts.updates.report_status(self._task, "running")
        async with asyncio.timeout(self._parts.limits.max_task_runtime_s or None):
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
        patch, checks = result.context_patch, self._parts.runs.checks(self._task.task_id)
        if patch is None:
            return None
        return await self._parts.context.apply(patch, self._strategy, payload=result.payload, checks=checks)

    async def _complete(self, result: TaskResult, patch_id: str | None) -> None:
        task = self._task
        patch = result.context_patch
        if await self._parts.tasks.change(task.task_id, status=TaskStatus.COMPLETE, result=result.payload) is None:
            self._stop_if_over()
        content = {
            "digest": result.digest,
            "payload": result.payload,
            "artifacts": result.artifacts,
            "sources": result.sources,
            "task_patch": patch.model_dump(mode="json") if patch is not None else None,
            "patch_id": patch_id,
        }
        self._parts.updates.report(task.task_id, UpdateType.RESULT, content, trace_id=task.trace_id)
        notification = result.notification
        if notification is not None:
            self._runtime.notify(notification if patch_id is None else _with_action(notification, patch_id, task))
        self._parts.updates.report_status(task, "complete")
        if self._in_background and task.context_snapshot.notify_on_complete and notification is None:
            self._notify("info", "Background task complete", f"Task {task.task_id} completed.")
        self._emit("completed")

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
            self._parts.updates.report(self._task.task_id, UpdateType.ERROR, shown, trace_id=self._task.trace_id)
            await self._end(TaskStatus.FAILED, "failed", error=str(error), extra=shown)
            if self._in_background:
                self._notify("error", "Background task failed", str(error))

    async def _end(self, status: TaskStatus, reason: str, *, error: str, extra: dict[str, Any]) -> None:
        """End the task. If it has already ended, it keeps that end and its reason."""
        task = self._task
        known = task.error if is_over(task) else None
        changed = await self._parts.tasks.change(task.task_id, status=status, error=known or error)
        if changed is not None and (known is None or reason != "cancelled"):
            self._parts.updates.report_status(task, reason)
        outcome: Outcome = "cancelled" if task.status == TaskStatus.CANCELLED else "failed"
        self._emit(outcome, **extra)

    @property
    def _in_background(self) -> bool:
        return self._task.task_type == TaskType.BACKGROUND

    def _notify(self, severity: Severity, title: str, body: str) -> None:
        self._runtime.notify(NotificationPayload(severity=severity, title=title, body=body))

    def _emit(self, outcome: Outcome, **extra: Any) -> None:
        took = None if self._began is None else (time.monotonic() - self._began) * 1000
        self._parts.telemetry.emit(TaskTelemetryEvent.of(self._task, outcome, duration_ms=took, **extra))


def _with_action(notification: NotificationPayload, patch_id: str, task: TaskState) -> NotificationPayload:
    button = NotificationAction(
        id="apply_context_patch",
        label="Apply to conversation",
        payload={"patch_id": patch_id, "task_id": task.task_id},
    )
    return notification.model_copy(update={"actions": [*notification.actions, button]})
