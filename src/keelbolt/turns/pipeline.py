"""Nested middleware: ``await next()`` runs the inner middleware, then the rest of the body runs.

An exception of a middleware is caught at its own level, so that outer ones finish their work after ``next()``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from keelbolt.eager import Started
from keelbolt.turns.abort import AbortSignal, ends_task, is_abort


class Abortable(Protocol):
    @property
    def abort_signal(self) -> AbortSignal: ...


class Next(Started):
    """The awaitable of ``next()``. The inner middleware runs only when it is awaited."""

    __slots__ = ()


Middleware: TypeAlias = Callable[[Any, Callable[[], Next]], Any]


@dataclass(slots=True)
class PipelineRun:
    """The result of a pipeline: whether its end was reached, the first error, and warnings."""

    reached: bool = False
    error: BaseException | None = None
    warnings: tuple[str, ...] = ()


class Pipeline:
    """A fixed list of middleware; each run has its own state."""

    __slots__ = ("_middleware", "name")

    def __init__(self, name: str, middleware: Sequence[Middleware]) -> None:
        self.name = name
        self._middleware = tuple(middleware)

    async def run(self, ctx: Abortable) -> PipelineRun:
        passage = PipelineRun()
        await self._enter(ctx, 0, passage)
        return passage

    async def _enter(self, ctx: Abortable, index: int, passage: PipelineRun) -> None:
        if ctx.abort_signal.aborted:
            index = len(self._middleware)  # skip the remaining middleware
        if index == len(self._middleware):
            passage.reached = True
            return
        used = False

        async def further() -> None:
            nonlocal used
            if used:
                passage.warnings += (f"{self.name}: a middleware called next() twice; the second call did nothing",)
                return
            used = True
            await self._enter(ctx, index + 1, passage)

        try:
            answer = self._middleware[index](ctx, lambda: Next(further))
            if inspect.isawaitable(answer):
                await answer
        except BaseException as error:  # kept for the caller of the pipeline to report
            if ends_task(error):
                raise
            if passage.error is None and not is_abort(error, ctx.abort_signal):
                passage.error = error
