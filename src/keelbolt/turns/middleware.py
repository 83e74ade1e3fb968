"""Nested middleware: ``await next()`` runs the inner middleware, then the rest of the body runs.

An exception of a middleware is caught at its own level, so that outer ones finish their work after ``next()``.
`hydrate` is middleware that fetches stored data into the turn's sets before the executor runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from keelbolt.eager import Started
from keelbolt.errors import InvalidValue
from keelbolt.names import suggestion
from keelbolt.turns.abort import AbortSignal, ends_task, is_abort
from keelbolt.turns.callbacks import EVERYTHING, Limit, asking, check_limit
from keelbolt.turns.codec import PLURALS
from keelbolt.turns.context import TurnContext
from keelbolt.turns.primitives import Tokenizable

_NAMES = (*PLURALS.values(), "tools")


def hydrate(*names: str, **limits: Limit) -> Middleware:
    """Return middleware for ``turn_input_pipeline`` that fetches these and adds them to the sets of the turn.

        turn_input_pipeline=[hydrate("tool_calls", messages=Window(last=200), memories=TopK(20))]

    A name is one of messages, memories, thoughts, tool_calls, retrievables, standing_instructions and tools; with a
    Window (or, for memories, a TopK) no more than that is fetched. An adapter without support for limits fetches
    everything, and the excess is dropped here. Standing instructions that the turn already has are not added twice.
    """
    wanted = _wanted(names, limits)

    async def hydrating(ctx: TurnContext, next: Callable[[], Next]) -> None:  # noqa: A002 - its name in all middleware
        for name, limit in wanted.items():
            await _add(ctx, name, limit)
        await next()

    return hydrating


def _wanted(names: Sequence[str], limits: dict[str, Limit]) -> dict[str, Limit | None]:
    wanted: dict[str, Limit | None] = dict.fromkeys(names)
    for name, limit in limits.items():
        wanted[name] = check_limit(name, limit)
    if not wanted:
        raise InvalidValue(f"hydrate needs at least one name: {', '.join(_NAMES)}")
    for name in wanted:
        if name not in _NAMES:
            raise InvalidValue(f"hydrate: unknown name {name!r}{suggestion(name, _NAMES)}")
    if wanted.get("tools") is not None:
        raise InvalidValue("tools are fetched without a limit")
    return wanted


async def _add(ctx: TurnContext, name: str, limit: Limit | None) -> None:
    verb = "refresh" if name == "standing_instructions" else "fetch"
    with asking(name, limit):
        found = await getattr(ctx, f"{verb}_{name}")()
    values = (limit or EVERYTHING).of(found)
    if name == "tools":
        for tool in values:
            ctx.tools.register(tool, overwrite=True)
    elif name == "standing_instructions":
        known = {str(value) for value in ctx.standing_instructions}
        for value in values:
            if str(value) not in known:
                known.add(str(value))
                ctx.standing_instructions.add(Tokenizable.of(value))
    else:
        kept = getattr(ctx, f"turn_{name}")
        for value in values:
            kept.add(value)


# ------------------------------------------------------------------------------------------------------------- pipeline


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
