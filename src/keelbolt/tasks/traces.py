"""Spans around workers and steps, where tracing is on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from keelbolt.observability.tracing import Tracing
from keelbolt.tasks.worker import Handler

if TYPE_CHECKING:
    from keelbolt.tasks.context import TaskContext


def traced(handler: Handler, tracing: Tracing) -> Handler:
    """The worker within a span that belongs to the trace of the message, whatever process that came in."""

    async def handle(ctx: TaskContext) -> None:
        with tracing.span("keelbolt.turn", parent=ctx.trace, task=ctx.task_id, attempt=ctx.attempt):
            await handler(ctx)

    return handle


def step_span(tracing: Tracing | None, name: str) -> AbstractContextManager[Any]:
    """A span around a step."""
    return nullcontext() if tracing is None else tracing.span(f"keelbolt.step {name}")
