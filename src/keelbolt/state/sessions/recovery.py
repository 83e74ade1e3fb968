"""Tasks that dead processes left behind: found, taken over by one process, and failed or run again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keelbolt.state.sessions.notifications import NotificationPayload
from keelbolt.state.sessions.owner import Run
from keelbolt.state.sessions.patches import MergeStrategy
from keelbolt.state.sessions.registry import is_over
from keelbolt.state.sessions.results import TaskPipeline
from keelbolt.state.sessions.telemetry import TaskTelemetryEvent
from keelbolt.state.types.tasks import TaskState, TaskStatus, TaskType, UpdateType

if TYPE_CHECKING:
    from keelbolt.state.sessions.core import SessionCore

PROCESS_DIED = "process died"
MAX_ATTEMPTS = 5

Recover = Callable[[TaskState], TaskPipeline | None]
"""What becomes of a task that was left behind: a pipeline runs it again, None fails it."""

logger = logging.getLogger("keelbolt.state.sessions")


def fail_orphans(_task: TaskState) -> None:
    """The recovery unless another is given: nobody knows how far the task came, so it is not run again by itself."""


class Recovery:
    """The recovery of one session's tasks."""

    def __init__(
        self, core: SessionCore, choose: Recover, restart: Callable[[TaskState, TaskPipeline, MergeStrategy], Any]
    ) -> None:
        self._core = core
        self._choose = choose
        self._restart = restart

    async def recover(self, orphans: Sequence[Run]) -> list[TaskState]:
        """Fail or restart these; their runs are this process's already. Answers those that were not over."""
        found = []
        for run in orphans:
            task = self._core.registry.get(run.task_id)
            if task is None or is_over(task):
                self._core.process.end(run)
                continue
            self._core.runs[run.task_id] = run
            pipeline = self._choose(task) if run.attempt <= MAX_ATTEMPTS else None
            if pipeline is None:
                await self._fail(task)
            else:
                logger.info("Task %s of a process that died is run again, attempt %d.", task.task_id, run.attempt)
                self._restart(task, pipeline, MergeStrategy(run.strategy))
            found.append(task)
        return found

    async def _fail(self, task: TaskState) -> None:
        core = self._core
        logger.warning("Task %s was left behind by a process that died.", task.task_id)
        await core.change(task.task_id, status=TaskStatus.FAILED, error=PROCESS_DIED)
        core.end_run(task.task_id)
        core.report_status(task, "process_died")
        if task.task_type == TaskType.BACKGROUND:
            body = f"The process that ran task {task.task_id} died."
            note = NotificationPayload(severity="error", title="Background task failed", body=body)
            content = note.model_dump(mode="json")
            core.report(task.task_id, UpdateType.NOTIFICATION, content, trace_id=task.trace_id)
        core.telemetry.emit(TaskTelemetryEvent.of(task, "failed", error=PROCESS_DIED))
