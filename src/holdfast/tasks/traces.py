"""Spans around workers and steps, where tracing is on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from holdfast.observability.tracing import Tracing, carried
from holdfast.tasks.worker import Handler

if TYPE_CHECKING:
    from holdfast.tasks.context import TaskContext


def traced(handler: Handler, tracing: Tracing) -> Handler:
    """The worker within a span that belongs to the trace of the message, whatever process that came in."""

    async def handle(ctx: TaskContext) -> None:
        parent = carried(ctx.request_context)
        with tracing.span("holdfast.turn", parent=parent, task=ctx.task_id, attempt=ctx.attempt):
            await handler(ctx)

    return handle


def step_span(tracing: Tracing | None, name: str) -> AbstractContextManager[Any]:
    """A span around a step."""
    return nullcontext() if tracing is None else tracing.span(f"holdfast.step {name}")
