"""The loop of a dispatch: iterations of input pipeline, executor and output pipeline, until a signal or an abort.

The unit is one iteration: its writes are stored together when it succeeds, and dropped when it fails. Writes of
earlier iterations stay stored.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from keelbolt.errors import (
    DispatchPipelineError,
    InvalidLlmDispatchInput,
    IterationLimitReached,
    LlmExecutionExecutorError,
    PipelineShortCircuited,
    TurnError,
)
from keelbolt.turns.abort import ends_task, is_abort
from keelbolt.turns.context import TurnContext
from keelbolt.turns.dispatch_context import DispatchContext, DispatchSeed, RawDispatch, UnitOfWork
from keelbolt.turns.events import (
    Bus,
    DispatchEnd,
    DispatchStart,
    Emitter,
    IterationEnd,
    IterationStart,
    Listener,
    Status,
    milliseconds,
    now,
)
from keelbolt.turns.middleware import Middleware, Pipeline
from keelbolt.turns.queue import Persistence
from keelbolt.turns.reports import ExecutorHelpers
from keelbolt.turns.sets import SetWrite
from keelbolt.turns.validate import executor_problems, option_problems, persistence_problems, pipeline_problems

MAX_ITERATIONS = 100
"""Default limit of iterations per dispatch."""

Executor: TypeAlias = Callable[[DispatchContext, ExecutorHelpers], Any]


class DispatchRunner:
    """Runs dispatches. A TurnRunner has one; standalone it runs dispatches without a turn, from a `RawDispatch`."""

    def __init__(
        self,
        *,
        executor_callback: Executor,
        dispatch_input_pipeline: Sequence[Middleware] = (),
        dispatch_output_pipeline: Sequence[Middleware] = (),
        persistence: Persistence = "deferred",
        unit_of_work: UnitOfWork | None = None,
        max_iterations: int | None = MAX_ITERATIONS,
        check_artifact_ids: bool = False,
        listener_timeout_seconds: float | None = 30.0,
    ) -> None:
        options = {
            "executor_callback": executor_callback,
            "unit_of_work": unit_of_work,
            "max_iterations": max_iterations,
            "check_artifact_ids": check_artifact_ids,
            "listener_timeout_seconds": listener_timeout_seconds,
        }
        problems = [
            *executor_problems(options),
            *pipeline_problems("dispatch_input_pipeline", dispatch_input_pipeline),
            *pipeline_problems("dispatch_output_pipeline", dispatch_output_pipeline),
            *persistence_problems(persistence),
            *option_problems(options),
        ]
        if problems:
            raise InvalidLlmDispatchInput("; ".join(problems))
        self._executor = executor_callback
        self._input = Pipeline("dispatch-input", dispatch_input_pipeline)
        self._output = Pipeline("dispatch-output", dispatch_output_pipeline)
        self._persistence: Persistence = persistence if isinstance(persistence, str) else dict(persistence)
        self._unit_of_work = unit_of_work
        self._max_iterations = max_iterations
        self._check_artifact_ids = check_artifact_ids
        self._timeout = listener_timeout_seconds
        self._bus = Bus()
        self.warned = False  # about an executor that seems to lack ack() or nack()

    def on(self, name: str, listener: Listener) -> Callable[[], None]:
        """Call the listener at each event of this name of standalone dispatches."""
        return self._bus.add(name, listener)

    def observe(self, name: str, listener: Listener) -> Callable[[], None]:
        """The same as `on`: there is one bus."""
        return self.on(name, listener)

    async def dispatch(
        self, *, source: TurnContext | None = None, raw: RawDispatch | None = None, emitter: Emitter | None = None
    ) -> DispatchEnd:
        """Run one dispatch to its end; raise its error after the event ``error`` was emitted."""
        ended = await self.run(source=source, raw=raw, emitter=emitter)
        if ended.error is not None:
            raise ended.error
        return ended

    async def run(
        self, *, source: TurnContext | None = None, raw: RawDispatch | None = None, emitter: Emitter | None = None
    ) -> DispatchEnd:
        """Run one dispatch like `dispatch`, but return the error in the result instead of raising it."""
        if (source is None) == (raw is None):
            raise InvalidLlmDispatchInput("pass either source, a turn's context, or raw, a RawDispatch")
        if source is not None and not isinstance(source, TurnContext):
            raise InvalidLlmDispatchInput(f"source must be a TurnContext, not {type(source).__name__}")
        if raw is not None:
            if not isinstance(raw, RawDispatch):
                raise InvalidLlmDispatchInput(f"raw must be a RawDispatch, not {type(raw).__name__}")
            raw.check()
        alone = emitter is None
        hooks = raw.hooks if raw is not None else None
        emits = emitter or Emitter(self._bus, hooks=hooks, timeout_seconds=self._timeout)
        seed = DispatchSeed(
            source=source,
            raw=raw,
            emitter=emits,
            persistence=self._persistence,
            unit_of_work=self._unit_of_work,
            check_artifact_ids=self._check_artifact_ids,
        )
        try:
            return await self._run(DispatchContext(seed), emits)
        finally:
            if alone:
                await emits.drain()

    async def _run(self, ctx: DispatchContext, emitter: Emitter) -> DispatchEnd:
        run = _Run(self, ctx, emitter, ExecutorHelpers(ctx, emitter), now())
        emitter.emit("dispatch_start", DispatchStart(dispatch_id=ctx.dispatch_id, started_at=run.started_at))
        try:
            await run.iterate(self._max_iterations)
        except asyncio.CancelledError:
            run.aborted = True
            raise
        except TurnError as error:
            run.error = error
            await ctx.queue.discard()
        finally:
            ended = run.finish()
        return ended

    async def execute(self, ctx: DispatchContext, helpers: ExecutorHelpers) -> None:
        answer = self._executor(ctx, helpers)
        if inspect.isawaitable(answer):
            await answer

    @property
    def input(self) -> Pipeline:
        return self._input

    @property
    def output(self) -> Pipeline:
        return self._output


@dataclass(slots=True)
class _Run:
    """State of a running dispatch."""

    runner: DispatchRunner
    ctx: DispatchContext
    emitter: Emitter
    helpers: ExecutorHelpers
    started_at: datetime
    started: int = 0  # iterations
    before: list[tuple[str, ...]] | None = None  # writes of the previous iteration
    error: BaseException | None = None
    aborted: bool = False  # the last iteration was dropped because of an abort

    async def iterate(self, limit: int | None) -> None:
        ctx = self.ctx
        while not (ctx.aborted or ctx.is_signalled):
            if limit is not None and self.started >= limit:
                raise IterationLimitReached(limit)
            if self.started:
                await asyncio.sleep(0)  # lets other tasks run and abort an executor that never waits
            ctx.begin_iteration(self.started)
            self.started += 1
            began = now()
            about: dict[str, Any] = {"dispatch_id": ctx.dispatch_id, "iteration": ctx.iteration, "started_at": began}
            self.emitter.emit("iteration_start", IterationStart(**about))
            if not (await self._passed(self.runner.input) and await self._executed()):
                await self._settle()
                return
            await self._passed(self.runner.output)
            await self._settle()
            self._check_signal()
            ended = now()
            end = IterationEnd(**about, ended_at=ended, duration_ms=milliseconds(began, ended))
            self.emitter.emit("iteration_end", end)

    def _check_signal(self) -> None:
        """Warn once per runner if an iteration without a signal wrote the same as the previous one, or nothing.

        Iterations that call tools, or wait for one, make progress that is not visible here.
        """
        ctx, before = self.ctx, self.before
        self.before = [_content(write) for write in ctx.written]
        if self.runner.warned or ctx.aborted or ctx.is_signalled or before != self.before:
            return
        if any(write.kind == "tool_call" for write in ctx.written):
            return
        if all(call.is_complete for call in ctx.own_tool_calls):
            self.runner.warned = True
            wrote = "the same values" if before else "nothing"
            self.emitter.warn(
                "not_signalled",
                f"two iterations in a row wrote {wrote} and ended without ctx.ack() or ctx.nack(); "
                "the executor is called again until max_iterations is reached. Call ctx.ack() when the turn is done",
            )

    async def _passed(self, pipeline: Pipeline) -> bool:
        """Run a pipeline; return whether to continue after it."""
        ctx = self.ctx
        passage = await pipeline.run(ctx)
        for warning in passage.warnings:
            self.emitter.warn("next_called_twice", warning)
        if passage.error is not None:
            raise DispatchPipelineError(
                f"a middleware of {pipeline.name} raised: {passage.error}", cause=passage.error
            ) from passage.error
        stopped = ctx.aborted or ctx.is_signalled
        if not passage.reached and not stopped:
            raise PipelineShortCircuited(pipeline.name)
        return not stopped

    async def _executed(self) -> bool:
        ctx = self.ctx
        try:
            await self.runner.execute(ctx, self.helpers)
        except BaseException as error:
            if ends_task(error):
                raise
            if is_abort(error, ctx.abort_signal):
                self.aborted = True
                return False
            raise LlmExecutionExecutorError(error) from error
        return not (ctx.aborted or ctx.is_signalled)

    async def _settle(self) -> None:
        """Store the iteration's writes, unless it was nacked or aborted."""
        self.aborted = self.aborted or self.ctx.aborted
        if self.ctx.nack_error is not None or self.aborted:
            await self.ctx.queue.discard()
        else:
            await self.ctx.store_iteration()

    def finish(self) -> DispatchEnd:
        ctx = self.ctx
        ctx.unlink()
        ctx.queue.close()
        error = self.error or ctx.nack_error
        ended = now()
        acked = ctx.is_acked and not self.aborted
        status: Status = "nack" if error is not None else "ack" if acked else "aborted"
        end = DispatchEnd(
            dispatch_id=ctx.dispatch_id,
            status=status,
            error=error,
            iterations=self.started,
            started_at=self.started_at,
            ended_at=ended,
            duration_ms=milliseconds(self.started_at, ended),
        )
        if error is not None:
            self.emitter.emit("error", error)
        self.emitter.emit("dispatch_end", end)
        return end


def _content(write: SetWrite) -> tuple[str, ...]:
    """Return the content of a write without its ids and times, which always differ."""
    return write.op, write.kind, str(getattr(write.value, "content", write.value))
