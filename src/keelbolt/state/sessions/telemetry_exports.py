"""Telemetry of tasks for Prometheus and OpenTelemetry."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from keelbolt.errors import MissingExtra
from keelbolt.state.sessions.telemetry import TaskTelemetryEvent

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from prometheus_client import CollectorRegistry

NANOSECONDS = 1_000_000_000


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
