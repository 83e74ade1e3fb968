"""Runs turns: input pipeline, one dispatch, output pipeline. A turn's results are its events and stored records."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from keelbolt.errors import (
    InputPipelineError,
    InvalidTurnRunnerConfig,
    OutputPipelineError,
    PipelineShortCircuited,
    TurnError,
    TurnTakenOver,
)
from keelbolt.turns.callbacks import CALLBACKS, SomeCallbacks, StorageCallbacks
from keelbolt.turns.context import ProgressStore, TurnContext, TurnInput
from keelbolt.turns.dispatch import MAX_ITERATIONS, DispatchRunner, Executor
from keelbolt.turns.dispatch_context import UnitOfWork
from keelbolt.turns.events import Bus, DispatchEnd, Emitter, Listener, TurnEnd, TurnStart, milliseconds, now
from keelbolt.turns.gates import GateStore
from keelbolt.turns.middleware import Middleware, Pipeline
from keelbolt.turns.queue import Persistence
from keelbolt.turns.tools import Tool, ToolRegistry
from keelbolt.turns.validate import (
    PIPELINES,
    callback_problems,
    executor_problems,
    option_problems,
    persistence_problems,
    pipeline_problems,
    tool_problems,
    unknown_problems,
)

_log = logging.getLogger("keelbolt.turns")

TurnStatus = Literal["ack", "nack", "aborted", "failed"]


class TurnRunnerOptions(TypedDict, total=False):
    """Options with a default; see the reference of turns."""

    tools: Sequence[Tool]
    turn_input_pipeline: Sequence[Middleware]
    turn_output_pipeline: Sequence[Middleware]
    dispatch_input_pipeline: Sequence[Middleware]
    dispatch_output_pipeline: Sequence[Middleware]
    persistence: Persistence
    unit_of_work: UnitOfWork | None
    gate_store: GateStore | None
    progress_store: ProgressStore | None
    max_iterations: int | None
    check_artifact_ids: bool
    listener_timeout_seconds: float | None


class TurnRunnerChanges(SomeCallbacks, TurnRunnerOptions, total=False):
    """Arguments for the runner of a storage: options, and callbacks that replace the storage's own."""


class TurnRunnerConfig(StorageCallbacks, TurnRunnerOptions):
    """All arguments of a runner: an executor, the storage callbacks, and options with a default."""

    executor_callback: Executor


_KNOWN = {"executor_callback", *CALLBACKS, *TurnRunnerOptions.__annotations__}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The result of a turn. ``context`` has its sets at the end: the fetched and stored values.

    ``status`` is that of the dispatch; it is ``failed`` if a pipeline of the turn failed, and ``aborted`` if the turn
    was aborted before the dispatch. ``errors`` are the ``error`` events, in order. ``iterations`` counts those of this
    run; earlier runs of the same turn stored ``context.iterations_done`` before them.
    """

    turn_id: str
    status: TurnStatus
    errors: tuple[BaseException, ...]
    iterations: int
    started_at: datetime
    ended_at: datetime
    context: TurnContext

    @property
    def ok(self) -> bool:
        """Whether the turn was acknowledged and nothing failed afterwards."""
        return self.status == "ack"


class TurnRunner:
    """Runs any number of turns, also concurrently. The configuration is validated on creation.

    runner = TurnRunner(executor_callback=execute, **noop_storage())
    await runner.run(TurnInput(system_prompt="Be kind."))
    """

    def __init__(self, **config: Unpack[TurnRunnerConfig]) -> None:
        given: dict[str, Any] = dict(config)
        if problems := _problems(given):
            raise InvalidTurnRunnerConfig(problems)
        self._callbacks = {name: given[name] for name in CALLBACKS if given.get(name) is not None}
        self._tools = tuple(given.get("tools", ()))
        self._input = tuple(given.get("turn_input_pipeline", ()))
        self._output = Pipeline("turn-output", given.get("turn_output_pipeline", ()))
        self.gate_store: GateStore | None = given.get("gate_store")
        self.progress_store: ProgressStore | None = given.get("progress_store")
        self._timeout: float | None = given.get("listener_timeout_seconds", 30.0)
        self._dispatcher = DispatchRunner(
            executor_callback=given["executor_callback"],
            dispatch_input_pipeline=given.get("dispatch_input_pipeline", ()),
            dispatch_output_pipeline=given.get("dispatch_output_pipeline", ()),
            persistence=given.get("persistence", "deferred"),
            unit_of_work=given.get("unit_of_work"),
            max_iterations=given.get("max_iterations", MAX_ITERATIONS),
            check_artifact_ids=given.get("check_artifact_ids", False),
        )
        self._bus = Bus()

    # ------------------------------------------------------------------------------------------------- listening

    def on(self, name: str, listener: Listener) -> Callable[[], None]:
        """Call the listener at each event of this name; return a function that removes it."""
        return self._bus.add(name, listener)

    def once(self, name: str, listener: Listener) -> Callable[[], None]:
        """Call the listener at the next event of this name only."""
        return self._bus.add(name, listener, once=True)

    def off(self, name: str, listener: Listener) -> None:
        self._bus.remove(name, listener)

    def observe(self, name: str, listener: Listener) -> Callable[[], None]:
        """The same as `on`: there is one bus."""
        return self.on(name, listener)

    def observe_once(self, name: str, listener: Listener) -> Callable[[], None]:
        """The same as `once`."""
        return self.once(name, listener)

    def unobserve(self, name: str, listener: Listener) -> None:
        self.off(name, listener)

    # ---------------------------------------------------------------------------------------------------- running

    async def run(self, turn_input: TurnInput) -> None:
        """Run one turn. Failures are emitted as ``error``; only an invalid input raises."""
        await self.run_result(turn_input)

    async def run_result(
        self,
        turn_input: TurnInput,
        *,
        before: Sequence[Middleware] = (),
        hooks: Mapping[str, Listener] | None = None,
        gate_store: GateStore | None = None,
    ) -> TurnResult:
        """Run one turn and return its result. Raises only where `run` does.

        ``before`` is middleware in front of the input pipeline, ``hooks`` are listeners, and ``gate_store`` replaces
        the runner's; all only for this turn.
        """
        emitter = Emitter(self._bus, hooks=hooks, timeout_seconds=self._timeout)
        ctx = TurnContext(
            turn_input,
            callbacks=self._callbacks,
            tools=ToolRegistry(self._tools),
            emitter=emitter,
            gate_store=gate_store or self.gate_store,
            progress_store=self.progress_store,
        )
        turn = _Turn(ctx, emitter, self._dispatcher, now())
        emitter.emit("turn_start", TurnStart(turn_id=ctx.id, started_at=turn.started_at))
        try:
            await turn.run(Pipeline("turn-input", (*before, *self._input)), self._output)
            await emitter.drain()
        finally:
            if ctx.progress is not None:
                ctx.progress.leave(ctx)
            ended = turn.end()
            await emitter.drain()
        if turn.errors and isinstance(root_cause(turn.errors[-1]), TurnTakenOver):
            _log.info("turn %s stops here: another process has begun it again, or it was erased", ctx.id)
        elif turn.errors:
            _log.error("turn %s failed: %s", ctx.id, explained(turn.errors[-1]))
        return TurnResult(
            turn_id=ctx.id,
            status=turn.status,
            errors=tuple(turn.errors),
            iterations=turn.dispatched.iterations if turn.dispatched is not None else 0,
            started_at=turn.started_at,
            ended_at=ended,
            context=ctx,
        )


@dataclass(slots=True)
class _Turn:
    """State of a running turn."""

    ctx: TurnContext
    emitter: Emitter
    dispatcher: DispatchRunner
    started_at: datetime
    errors: list[BaseException] = field(default_factory=list)
    dispatched: DispatchEnd | None = None
    failed: bool = False
    ended: bool = False  # in an earlier run: all of its iterations are stored

    async def run(self, before: Pipeline, after: Pipeline) -> None:
        if not (await self._begun() and await self._received() and await self._passed(before, InputPipelineError)):
            return
        self._show_incoming()
        if not self.ended:
            self.dispatched = await self.dispatcher.run(source=self.ctx, emitter=self.emitter)
        if self.dispatched is not None and self.dispatched.error is not None:
            self.errors.append(self.dispatched.error)  # the dispatch has emitted it
        elif not self.ctx.aborted:
            await self._passed(after, OutputPipelineError)

    async def _begun(self) -> bool:
        """Load the progress of the turn, if it is stored."""
        if self.ctx.progress is None:
            return True
        try:
            found = await self.ctx.progress.begin(self.ctx)
        except Exception as error:  # noqa: BLE001 - emitted, like every failure of a turn
            self._fail(InputPipelineError(f"the progress of the turn could not be loaded: {error}", cause=error))
            return False
        self.ctx.iterations_done, self.ended = found.iterations, found.ended
        return True

    async def _received(self) -> bool:
        """Store the messages that the turn answers. In a repeated run they may already be stored, which is no error."""
        if self.ctx.iterations_done or self.ended:
            return True
        try:
            for message in self.ctx.incoming:
                await self.ctx.store_message(message)
        except Exception as error:  # noqa: BLE001 - emitted, like every failure of a turn
            self._fail(InputPipelineError(f"the incoming message could not be stored: {error}", cause=error))
            return False
        return True

    def _show_incoming(self) -> None:
        """Add the messages that the turn answers to its sets, also without `hydrate`."""
        known = {message.id for message in self.ctx.turn_messages}
        for message in self.ctx.incoming:
            if message.id not in known:
                self.ctx.turn_messages.add(message)

    def _fail(self, error: BaseException) -> None:
        self.failed = True
        self.errors.append(error)
        self.emitter.emit("error", error)

    async def _passed(self, pipeline: Pipeline, kind: type[InputPipelineError | OutputPipelineError]) -> bool:
        """Run a pipeline of the turn; return whether to continue after it."""
        passage = await pipeline.run(self.ctx)
        try:
            await self.ctx.finish_writes()
        except TurnError as failed:
            passage.error = passage.error or failed
        for warning in passage.warnings:
            self.emitter.warn("next_called_twice", warning)
        error: BaseException | None = None
        if passage.error is not None:
            error = kind(f"a middleware of {pipeline.name} raised: {passage.error}", cause=passage.error)
        elif not passage.reached and not self.ctx.aborted:
            error = PipelineShortCircuited(pipeline.name)
        if error is not None:
            self._fail(error)
        return error is None and not self.ctx.aborted

    @property
    def status(self) -> TurnStatus:
        if self.failed:
            return "failed"
        if self.ended and not self.ctx.aborted:
            return "ack"
        return self.dispatched.status if self.dispatched is not None else "aborted"

    def end(self) -> datetime:
        ended = now()
        span = milliseconds(self.started_at, ended)
        self.emitter.emit(
            "turn_end", TurnEnd(turn_id=self.ctx.id, started_at=self.started_at, ended_at=ended, duration_ms=span)
        )
        return ended


def root_cause(error: BaseException) -> BaseException:
    """Return the first error in the chain of causes."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def explained(error: BaseException) -> str:
    """Return the error and its cause in one line, with the code location where the cause was raised."""
    cause = root_cause(error)
    frames = traceback.extract_tb(cause.__traceback__)
    at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    words = " ".join(str(error).split())
    return f"{words} [{type(cause).__name__}{at}]"


def _problems(config: dict[str, Any]) -> list[str]:
    return [
        *executor_problems(config),
        *callback_problems(config),
        *tool_problems(config.get("tools", ())),
        *(problem for name in PIPELINES for problem in pipeline_problems(name, config.get(name, ()))),
        *persistence_problems(config.get("persistence", "deferred")),
        *option_problems(config),
        *unknown_problems(config, _KNOWN),
    ]
