"""Runs a task from waiting for its turn to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from keelbolt.errors import LeaseLost, SteeringCancelled
from keelbolt.state.sessions.notifications import NotificationAction, NotificationPayload, Severity
from keelbolt.state.sessions.patches import MergeStrategy
from keelbolt.state.sessions.registry import is_over
from keelbolt.state.sessions.results import TaskPipeline, TaskResult, TaskRuntime
from keelbolt.state.sessions.telemetry import Outcome, TaskTelemetryEvent
from keelbolt.state.types.tasks import TaskState, TaskStatus, TaskType, UpdateType

if TYPE_CHECKING:
    from keelbolt.state.sessions.core import SessionCore
    from keelbolt.state.sessions.merging import PatchManager

logger = logging.getLogger("keelbolt.state.sessions")


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
