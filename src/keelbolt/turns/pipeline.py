"""Middleware in the manner of an onion: ``await next()`` runs everything further in, then the rest of the body runs.

What a middleware raises is caught at its own level, so those further out finish their work after ``next()``.
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
    """What ``await next()`` waits for. Nothing further in runs before that."""

    __slots__ = ()


Middleware: TypeAlias = Callable[[Any, Callable[[], Next]], Any]


@dataclass(slots=True)
class Passage:
    """How a pipeline went: whether its end was reached, what was raised first, and what somebody should look at."""

    reached: bool = False
    error: BaseException | None = None
    warnings: tuple[str, ...] = ()


class Pipeline:
    """The same middleware for every run; each run has its own place in it."""

    __slots__ = ("_middleware", "name")

    def __init__(self, name: str, middleware: Sequence[Middleware]) -> None:
        self.name = name
        self._middleware = tuple(middleware)

    async def run(self, ctx: Abortable) -> Passage:
        passage = Passage()
        await self._enter(ctx, 0, passage)
        return passage

    async def _enter(self, ctx: Abortable, index: int, passage: Passage) -> None:
        if ctx.abort_signal.aborted:
            index = len(self._middleware)  # the bodies that are left are skipped
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
        except BaseException as error:  # kept, and told by whoever ran the pipeline
            if ends_task(error):
                raise
            if passage.error is None and not is_abort(error, ctx.abort_signal):
                passage.error = error
