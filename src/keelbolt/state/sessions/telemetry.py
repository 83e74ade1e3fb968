"""Telemetry of tasks: their outcomes, for logs, metrics and traces. It never delays a task.

A session passes each event to its `Telemetry`, which returns at once; a background task passes them to the sink, in
order. A sink that fails, hangs or is too slow loses events, but never affects a task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, Field

from keelbolt.errors import MissingExtra
from keelbolt.state.types.tasks import TaskState, TaskStatus, TaskType

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from prometheus_client import CollectorRegistry

LEVELS = {"failed": logging.ERROR, "cancelled": logging.WARNING}
EVENTS_WAITING = 1000
EMIT_SECONDS = 5.0
LAST_SECONDS = 1.0
NANOSECONDS = 1_000_000_000
Outcome = Literal["spawned", "completed", "failed", "cancelled"]
logger = logging.getLogger("keelbolt.state.sessions")


class TaskTelemetryEvent(BaseModel):
    """One step in the life of a task."""

    event_type: Literal[
        "task_spawned", "task_completed", "task_failed", "task_cancelled", "task_group_completed", "task_group_failed"
    ]
    outcome: Outcome
    session_id: str
    task_id: str
    parent_task_id: str | None = None
    trace_id: str | None = None
    task_type: TaskType
    status: TaskStatus
    mode: Literal["foreground", "subagent", "job"] | None = None
    spawn_reason: str | None = None
    duration_ms: float | None = None
    created_at_s: float = Field(default_factory=time.time)
    extra: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def of(
        cls, task: TaskState, outcome: Outcome, *, duration_ms: float | None = None, **extra: Any
    ) -> TaskTelemetryEvent:
        """Return the event of a task that was spawned or has ended."""
        snapshot = task.context_snapshot
        mode: Literal["foreground", "subagent", "job"] = (
            "subagent" if task.task_type == TaskType.BACKGROUND else "foreground"
        )
        if (snapshot.spawn_reason or "").startswith("tool:"):
            mode = "job"
        return cls.model_validate(
            {
                "event_type": f"task_{outcome}",
                "outcome": outcome,
                "session_id": task.session_id,
                "task_id": task.task_id,
                "parent_task_id": snapshot.spawned_from_task_id,
                "trace_id": task.trace_id,
                "task_type": task.task_type.value,
                "status": task.status.value,
                "mode": mode,
                "spawn_reason": snapshot.spawn_reason,
                "duration_ms": duration_ms,
                "extra": extra,
            }
        )


class Telemetry:
    """Sends events to a sink in the background. `dropped` and `failed` count events that the sink did not process."""

    def __init__(self, sink: TaskTelemetrySink | None = None, *, waiting: int = EVENTS_WAITING) -> None:
        self._sink = None if sink is None or isinstance(sink, NoOpTaskTelemetrySink) else sink
        self._events: deque[TaskTelemetryEvent] = deque()
        self._waiting = waiting
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0
        self.failed = 0

    def emit(self, event: TaskTelemetryEvent) -> None:
        """Queue an event and return at once."""
        if self._sink is None:
            return
        if len(self._events) >= self._waiting:
            self.dropped += 1
            return
        self._events.append(event)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work(self._sink), name="task-telemetry")

    async def close(self) -> None:
        """Give the sink a short time to process the remaining events."""
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=LAST_SECONDS)
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self.dropped += len(self._events)
        self._events.clear()

    async def _work(self, sink: TaskTelemetrySink) -> None:
        while self._events:
            event = self._events.popleft()
            try:
                async with asyncio.timeout(EMIT_SECONDS):
                    await sink.emit(event)
            except asyncio.CancelledError:
                self.failed += 1
                raise
            except Exception:
                self.failed += 1
                logger.warning("A telemetry sink failed for the event %s.", event.event_type, exc_info=self.failed == 1)


# ---------------------------------------------------------------------------------------------------------------- sinks


class TaskTelemetrySink(Protocol):
    """Receives telemetry events."""

    async def emit(self, event: TaskTelemetryEvent) -> None:
        """Process one event."""


class NoOpTaskTelemetrySink:
    """Discards all events."""

    async def emit(self, event: TaskTelemetryEvent) -> None:
        """Discard the event."""


class LoggingTaskTelemetrySink:
    """Logs one line per event: info, a warning for cancelled tasks, an error for failed ones."""

    def __init__(self, logger: logging.Logger | None = None, *, include_extra: bool = True) -> None:
        self._logger = logger or logging.getLogger("keelbolt.state.sessions.telemetry")
        self._include_extra = include_extra

    async def emit(self, event: TaskTelemetryEvent) -> None:
        """Log the event."""
        shown = {
            "session_id": event.session_id,
            "task_id": event.task_id,
            "task_type": event.task_type.value,
            "trace_id": event.trace_id,
            "parent_task_id": event.parent_task_id,
            "mode": event.mode,
            "spawn_reason": event.spawn_reason,
            "duration_ms": None if event.duration_ms is None else round(event.duration_ms, 2),
            **(event.extra if self._include_extra else {}),
        }
        text = " ".join(f"{name}={value}" for name, value in shown.items() if value is not None)
        self._logger.log(LEVELS.get(event.outcome, logging.INFO), "%s %s", event.event_type, text)


class PrometheusTaskTelemetrySink:
    """Counts tasks by outcome and type, and measures their duration. Ids never become labels."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        if find_spec("prometheus_client") is None:
            raise MissingExtra("prometheus", "prometheus-client")
        import prometheus_client  # noqa: PLC0415 - optional dependency

        registry = registry or prometheus_client.REGISTRY
        labels = ["outcome", "task_type", "mode"]
        self._tasks = prometheus_client.Counter(
            "keelbolt_session_tasks", "Session tasks by outcome", labels, registry=registry
        )
        self._seconds = prometheus_client.Histogram(
            "keelbolt_session_task_seconds", "Run time of session tasks in seconds", labels, registry=registry
        )

    async def emit(self, event: TaskTelemetryEvent) -> None:
        """Count the event."""
        labels = (event.outcome, event.task_type.value, event.mode or "")
        self._tasks.labels(*labels).inc()
        if event.duration_ms is not None:
            self._seconds.labels(*labels).observe(event.duration_ms / 1000)


class OpenTelemetryTaskTelemetrySink:
    """Creates a span for each ended task, from its start to its end; a failed task's span carries its error."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        if find_spec("opentelemetry") is None:
            raise MissingExtra("otel", "opentelemetry")
        from opentelemetry import trace  # noqa: PLC0415 - optional dependency

        self._tracer = tracer or trace.get_tracer("keelbolt")

    async def emit(self, event: TaskTelemetryEvent) -> None:
        """Create the task's span."""
        if event.outcome == "spawned":
            return
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

        ended = int(event.created_at_s * NANOSECONDS)
        began = ended - int((event.duration_ms or 0.0) * NANOSECONDS / 1000)
        span = self._tracer.start_span("session.task", start_time=began, attributes=_attributes(event))
        if event.outcome == "failed":
            span.set_status(Status(StatusCode.ERROR, str(event.extra.get("error", ""))))
        span.end(end_time=ended)


def _attributes(event: TaskTelemetryEvent) -> dict[str, Any]:
    named = {
        "session_id": event.session_id,
        "task_id": event.task_id,
        "parent_task_id": event.parent_task_id,
        "trace_id": event.trace_id,
        "task_type": event.task_type.value,
        "status": event.status.value,
        "outcome": event.outcome,
        "mode": event.mode,
        "spawn_reason": event.spawn_reason,
    }
    return {f"keelbolt.{name}": value for name, value in named.items() if value is not None}
