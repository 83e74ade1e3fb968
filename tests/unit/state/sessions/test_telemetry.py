"""Telemetry reports the outcome of tasks and never delays them."""

from __future__ import annotations

import asyncio
import logging

import prometheus_client
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from keelbolt.state.sessions import telemetry
from keelbolt.state.sessions.telemetry import (
    LoggingTaskTelemetrySink,
    NoOpTaskTelemetrySink,
    OpenTelemetryTaskTelemetrySink,
    PrometheusTaskTelemetrySink,
    Telemetry,
)
from keelbolt.state.sessions.telemetry import TaskTelemetryEvent as Event
from keelbolt.state.types.tasks import TaskContextSnapshot, TaskState, TaskStatus, TaskType


def task(reason: str | None = None, kind: TaskType = TaskType.BACKGROUND) -> TaskState:
    snapshot = TaskContextSnapshot(session_id="s", task_id="t", spawn_reason=reason)
    return TaskState("t", "s", TaskStatus.RUNNING, kind, 0, snapshot)


class Sink:
    """Accepts events, fails, or hangs."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken = 0

    async def emit(self, event: Event) -> None:
        await self.gate.wait()
        if self.broken:
            self.broken -= 1
            raise ValueError("no")
        self.events.append(event)


def test_an_event_names_its_task() -> None:
    """Tool job, background task and foreground task are three modes."""
    assert Event.of(task("tool:x"), "spawned").mode == "job"
    assert Event.of(task(), "failed", error="x").mode == "subagent"
    found = Event.of(task(kind=TaskType.FOREGROUND), "completed", duration_ms=3.0)
    assert (found.mode, found.event_type, found.parent_task_id) == ("foreground", "task_completed", "foreground")


async def test_events_are_ordered_and_sink_errors_are_logged() -> None:
    """An error of the sink is logged, and the next event is emitted."""
    sink = Sink()
    sink.broken = 1
    line = Telemetry(sink)
    for number in range(4):
        line.emit(Event.of(task(), "spawned", number=number))
    await line.close()
    assert [event.extra["number"] for event in sink.events] == [1, 2, 3]
    assert (line.failed, line.dropped) == (1, 0)


async def test_a_hanging_sink_does_not_delay_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Excess events are dropped and counted; closing waits for a limited time."""
    monkeypatch.setattr(telemetry, "LAST_SECONDS", 0.01)
    sink = Sink()
    sink.gate.clear()
    line = Telemetry(sink, waiting=3)
    for _ in range(10):
        line.emit(Event.of(task(), "spawned"))
    assert line.dropped == 7
    await line.close()
    assert sink.events == []
    assert (line.dropped, line.failed) == (9, 1)


async def test_no_sink_costs_nothing() -> None:
    """Without a sink no background task is started."""
    before = asyncio.all_tasks()
    for sink in (None, NoOpTaskTelemetrySink()):
        Telemetry(sink).emit(Event.of(task(), "spawned"))
    assert asyncio.all_tasks() == before


async def test_logging(caplog: pytest.LogCaptureFixture) -> None:
    """Each event is one line, at the level of its outcome."""
    caplog.set_level(logging.INFO)
    sink = LoggingTaskTelemetrySink()
    for outcome in ("spawned", "cancelled", "failed"):
        await sink.emit(Event.of(task(), outcome, error="x"))
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "ERROR"]
    assert "task_failed session_id=s task_id=t" in caplog.text
    assert "error=x" in caplog.text


async def test_prometheus() -> None:
    """Tasks are counted and timed by outcome; ids are not labels."""
    registry = prometheus_client.CollectorRegistry()
    sink = PrometheusTaskTelemetrySink(registry)
    for _ in range(2):
        await sink.emit(Event.of(task(), "completed", duration_ms=250.0))
    labels = {"outcome": "completed", "task_type": "BACKGROUND", "mode": "subagent"}
    assert registry.get_sample_value("keelbolt_session_tasks_total", labels) == 2
    assert registry.get_sample_value("keelbolt_session_task_seconds_sum", labels) == 0.5


async def test_opentelemetry() -> None:
    """Each ended task has a span of its duration; the span of a failed task has the error."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sink = OpenTelemetryTaskTelemetrySink(provider.get_tracer("test"))
    await sink.emit(Event.of(task(), "spawned"))
    await sink.emit(Event.of(task(), "failed", duration_ms=1500.0, error="boom"))
    (span,) = exporter.get_finished_spans()
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == 1_500_000_000
    assert (span.status.description, (span.attributes or {})["keelbolt.task_id"]) == ("boom", "t")
