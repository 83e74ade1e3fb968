"""Spans around workers and steps, durations of steps, and the fields of log lines about a task."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from keelbolt.kernel import Claim
from keelbolt.observability.metrics import Metrics
from keelbolt.observability.tracing import Tracing, carried
from keelbolt.tasks.record import TaskRecord
from keelbolt.tasks.worker import Handler

if TYPE_CHECKING:
    from keelbolt.tasks.context import TaskContext
    from keelbolt.tasks.runner import Runner


def traced(handler: Handler, tracing: Tracing) -> Handler:
    """Wrap the worker in a span that belongs to the trace of the message, also in another process."""

    async def handle(ctx: TaskContext) -> None:
        with tracing.span("keelbolt.turn", parent=ctx.trace, task=ctx.task_id, attempt=ctx.attempt):
            await handler(ctx)

    return handle


def watched_step(runner: Runner, name: str) -> AbstractContextManager[Any]:
    """Return a context manager that records the span and the duration of a step."""
    if runner.tracing is None and runner.metrics is None:
        return nullcontext()
    return _watched(runner.tracing, runner.metrics, name)


@contextmanager
def _watched(tracing: Tracing | None, metrics: Metrics | None, name: str) -> Iterator[None]:
    began, outcome = time.perf_counter(), "failed"
    try:
        with nullcontext() if tracing is None else tracing.span(f"keelbolt.step {name}"):
            yield
        outcome = "done"
    finally:
        if metrics is not None:
            metrics.step_ended(outcome, time.perf_counter() - began)


# ----------------------------------------------------------------------------------------------------------- log fields


def log_fields(claim: Claim, record: TaskRecord | None = None) -> dict[str, Any]:
    """Return the task and attempt, and with a record the context and trace id, for ``extra=`` of a log call."""
    found: dict[str, Any] = {"task": claim.key, "attempt": claim.attempt}
    if record is not None:
        found["context"] = record.context_id
        version, *ids = (carried(record.turn.request) or {}).get("traceparent", "").split("-")
        if version and len(ids) == 3:
            found["trace"] = ids[0]
    return found
