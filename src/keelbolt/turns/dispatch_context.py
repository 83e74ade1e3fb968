"""The context of a dispatch, passed to executors, tools and dispatch middleware.

A raw dispatch has no turn; the caller provides its input.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from keelbolt.errors import (
    DispatchNacked,
    InvalidInitialRegistryValue,
    InvalidInitialValue,
    InvalidLlmDispatchInput,
    InvalidLlmExecutionContext,
    LlmExecutionAlreadySignalled,
    LlmExecutionGateNotSupported,
)
from keelbolt.kernel.ids import new_id
from keelbolt.turns.abort import AbortController, linked
from keelbolt.turns.callbacks import CALLBACKS
from keelbolt.turns.codec import PLURALS, TYPES
from keelbolt.turns.context import TurnContext, TurnProgress
from keelbolt.turns.events import EMITS, PAST, WRITTEN, Emitter, Kind, Listener, Op
from keelbolt.turns.primitives import Memory, Message, Retrievable, Thought, Tokenizable, ToolCall
from keelbolt.turns.queue import Destination, Persistence, WriteQueue
from keelbolt.turns.registry import Registry
from keelbolt.turns.sets import SetWrite, TurnSets, checked_write
from keelbolt.turns.surface import BaseContext
from keelbolt.turns.tools import Tool, ToolRegistry
from keelbolt.turns.validate import callback_problems, tool_problems, unknown_problems

UnitOfWork = Callable[[TurnContext], AbstractAsyncContextManager[Any]]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSeed:
    """The arguments of a dispatch context: a turn or a raw dispatch, and options."""

    source: TurnContext | None
    raw: RawDispatch | None
    emitter: Emitter
    persistence: Persistence = "deferred"
    unit_of_work: UnitOfWork | None = None
    check_artifact_ids: bool = False


class DispatchContext(BaseContext):
    """One dispatch. Its sets are copies of the turn's, and show every write at once.

    Storage and the turn's sets get the writes of an iteration when it succeeds (or at `checkpoint`), and never when it
    is nacked, aborted or raises. The call itself queues the write; awaiting it is recommended, but not required.
    """

    __slots__ = (
        "_acked",
        "_checks_ids",
        "_nack_error",
        "_on_ack",
        "_raw",
        "_source",
        "_wait_for",
        "dispatch_id",
        "iteration",
        "queue",
        "stash",
        "system_prompt",
        "tools",
        "unlink",
        "written",
    )

    def __init__(self, seed: DispatchSeed) -> None:
        if not isinstance(seed, DispatchSeed):
            raise InvalidLlmDispatchInput("only dispatch() creates a dispatch context")
        source, raw = seed.source, seed.raw
        if source is not None:
            self.holdings = source.holdings.copy()
            self.system_prompt = source.system_prompt.copy()
            self.stash = Registry(source.stash.all())
            self.tools = source.tools.copy()
            self._controller, self.unlink = linked(source.abort_signal)
            self._wait_for: Callable[..., Any] | None = partial(source.pass_gate, self._controller.signal)
        else:
            assert raw is not None
            self.holdings = raw.holdings()
            self.system_prompt = Tokenizable.of(raw.system_prompt)
            self.stash = Registry(raw.stash)
            self.tools = ToolRegistry(raw.tools)
            self._controller, self.unlink = linked((raw.abort_controller or AbortController()).signal)
            self._wait_for = raw.wait_for
        self._source = source
        self._raw = raw
        self._emitter = seed.emitter
        self._checks_ids = seed.check_artifact_ids
        self.dispatch_id = new_id()
        self.iteration = 0
        self._acked = False
        self._nack_error: BaseException | None = None
        self._on_ack: list[Callable[[], Any]] = []
        self.queue = WriteQueue(self._destination(seed.unit_of_work), seed.persistence)
        self.written: list[SetWrite] = []  # in this iteration

    # --------------------------------------------------------------------------------------------------- identity

    @property
    def id(self) -> str:
        return self.dispatch_id

    @property
    def turn_id(self) -> str:
        """The id of the turn, or of the dispatch itself if it is standalone."""
        return self._source.id if self._source is not None else self.dispatch_id

    @property
    def incoming(self) -> tuple[Message, ...]:
        """The messages that this turn answers; empty if it was given none."""
        return self._source.incoming if self._source is not None else ()

    def tool_call_count(self, checksum: str) -> int:
        """Return the number of calls with this checksum: the same tool with the same arguments."""
        return sum(call.checksum == checksum for call in self.turn_tool_calls)

    # -------------------------------------------------------------------------------------------------- signalling

    @property
    def is_signalled(self) -> bool:
        return self._acked or self._nack_error is not None

    @property
    def is_acked(self) -> bool:
        return self._acked

    @property
    def nack_error(self) -> BaseException | None:
        return self._nack_error

    def ack(self) -> None:
        """Signal success: after this iteration its writes are stored and the dispatch ends."""
        self._signal_once()
        self._acked = True
        for handler in list(self._on_ack):
            try:
                handler()
            except Exception:  # noqa: BLE001
                _log.exception("a handler of on_ack raised; the other handlers are still called")

    def nack(self, error: BaseException | str | None = None) -> None:
        """Signal failure: the writes of this iteration are dropped and the dispatch ends with this error."""
        self._signal_once()
        self._nack_error = error if isinstance(error, BaseException) else DispatchNacked(error and str(error))

    def on_ack(self, handler: Callable[[], Any], /) -> Callable[[], None]:
        """Call the handler inside `ack`; return a function that removes it."""
        self._on_ack.append(handler)

        def forget() -> None:
            if handler in self._on_ack:
                self._on_ack.remove(handler)

        return forget

    def _signal_once(self) -> None:
        if self.is_signalled:
            raise LlmExecutionAlreadySignalled

    # ------------------------------------------------------------------------------------------------------ writes

    @property
    def pending(self) -> tuple[SetWrite, ...]:
        """The writes that are not yet in storage."""
        return self.queue.pending

    def begin_iteration(self, number: int) -> None:
        """Start the iteration with this index; iterations of earlier runs of the turn are added to it."""
        self.iteration = number
        self.written = []
        if self._source is not None:
            self.iteration += self._source.iterations_done
            self._source.begin_iteration(self.iteration)

    async def store_iteration(self) -> None:
        """Store this iteration's writes together with the progress of the turn."""
        source = self._source
        mark = None
        if source is not None and source.progress is not None:
            mark = partial(source.progress.reached, source, TurnProgress(self.iteration + 1, ended=self._acked))
        await self.queue.flush(mark)

    async def checkpoint(self) -> None:
        """Store the writes so far now, so that neither a nack nor a crash undoes them."""
        await self.queue.flush()

    def replace_tool_call_group(
        self, ids: Sequence[str], replacements: Sequence[ToolCall]
    ) -> Coroutine[Any, Any, None]:
        """Replace tool calls, in one step if the storage supports it."""
        for call in replacements:
            checked_write("store", "tool_call", call)
        if isinstance(ids, str) or not all(isinstance(one, str) and one for one in ids):
            raise InvalidInitialValue("replace_tool_call_group takes a list of ids and a list of ToolCall")
        return self._queue_write(SetWrite("replace", "tool_call", (tuple(ids), tuple(replacements))))

    def _write(self, op: Op, kind: Kind, value: Any) -> Coroutine[Any, Any, None]:
        return self._queue_write(checked_write(op, kind, value))

    def _queue_write(self, write: SetWrite) -> Coroutine[Any, Any, None]:
        self.queue.check_open()
        if self._checks_ids:
            self.holdings.check_artifact_ids(write)
        self.holdings.apply(write)
        self.written.append(write)
        return self.queue.put(write)

    def _destination(self, unit_of_work: UnitOfWork | None) -> Destination:
        source = self._source
        if source is None:
            return Destination(perform=self._perform_raw, mirror=lambda _write: None, tell=self._tell)
        unit = None if unit_of_work is None else (lambda: unit_of_work(source))
        return Destination(perform=source.perform, mirror=source.holdings.apply, tell=self._tell, unit_of_work=unit)

    def _tell(self, write: SetWrite) -> None:
        if write.op != "replace":
            self._emitter.emit(f"{PAST[write.op]}_{write.kind}", write.value)
            return
        ids, replacements = write.value
        for one in ids:
            self._emitter.emit("deleted_tool_call", one)
        for call in replacements:
            self._emitter.emit("stored_tool_call", call)

    # -------------------------------------------------------------------------------------- reads, bytes and gates

    async def _call(self, callback: str, *arguments: Any) -> Any:
        if self._source is not None:
            return await self._source._call(callback, *arguments)  # noqa: SLF001 - the same method of the turn
        function = self._raw_callback(callback)
        if function is None:
            if callback.endswith("_bytes_callback"):
                raise InvalidLlmExecutionContext(f"the raw dispatch has no {callback}; pass it in callbacks=")
            return []
        answer = function(self, *arguments)
        return await answer if inspect.isawaitable(answer) else answer

    def _raw_callback(self, name: str) -> Callable[..., Any] | None:
        assert self._raw is not None
        return self._raw.callbacks.get(name)

    async def _perform_raw(self, write: SetWrite) -> None:
        if write.op == "replace":
            await self._replace(*write.value, together=self._raw_callback(write.callback) is not None)
        else:
            await self._call(write.callback, write.value)

    async def _pass(self, **gate: Any) -> Any:
        if self._wait_for is None:
            raise LlmExecutionGateNotSupported
        return await self._wait_for(**gate)


# --------------------------------------------------------------------------------------------------------- raw dispatch


HOOKS = EMITS | WRITTEN


@dataclass(frozen=True, slots=True, kw_only=True)
class RawDispatch:
    """The input of a standalone dispatch.

    ``callbacks`` are any of the storage callbacks; they get this dispatch's own context. Without them writes only
    change the local sets. ``hooks`` are listeners by event: the five emitted kinds and ``stored_message``, … .
    ``wait_for`` opens gates; without it there are none.
    """

    system_prompt: str | Tokenizable
    standing_instructions: Sequence[str | Tokenizable] = ()
    stash: Mapping[str, Any] | None = None
    messages: Sequence[Message] = ()
    memories: Sequence[Memory] = ()
    thoughts: Sequence[Thought] = ()
    tool_calls: Sequence[ToolCall] = ()
    retrievables: Sequence[Retrievable] = ()
    tools: Sequence[Tool] = ()
    callbacks: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    hooks: Mapping[str, Listener] = field(default_factory=dict)
    wait_for: Callable[..., Awaitable[Any]] | None = None
    abort_controller: AbortController | None = None

    def holdings(self) -> TurnSets:
        return TurnSets(
            messages=self.messages,
            memories=self.memories,
            thoughts=self.thoughts,
            tool_calls=self.tool_calls,
            retrievables=self.retrievables,
            instructions=self.standing_instructions,
        )

    def check(self) -> None:
        """Raise InvalidLlmExecutionContext that lists all problems."""
        if problems := [*self._text_problems(), *self._set_problems(), *self._function_problems()]:
            raise InvalidLlmExecutionContext("; ".join(problems))

    def _text_problems(self) -> Iterable[str]:
        if not isinstance(self.system_prompt, str | Tokenizable) or not self.system_prompt:
            yield "system_prompt must be a non-empty str or Tokenizable"
        texts = self.standing_instructions
        if isinstance(texts, str | Tokenizable) or not all(isinstance(one, str | Tokenizable) and one for one in texts):
            yield "standing_instructions must be a list of non-empty texts (str or Tokenizable)"
        try:
            Registry(self.stash)
        except InvalidInitialRegistryValue as wrong:
            yield f"stash: {wrong}"

    def _set_problems(self) -> Iterable[str]:
        for kind, type_ in TYPES.items():
            items = getattr(self, PLURALS[kind])
            if (
                isinstance(items, str)
                or not isinstance(items, Iterable)
                or not all(isinstance(i, type_) for i in items)
            ):
                yield f"{PLURALS[kind]} must be a list of {type_.__name__}"
        yield from tool_problems(self.tools)

    def _function_problems(self) -> Iterable[str]:
        for name, functions in (("callbacks", self.callbacks), ("hooks", self.hooks)):
            if not isinstance(functions, Mapping):
                yield f"{name} must be a dict of functions, not {type(functions).__name__}"
                return
        yield from callback_problems(self.callbacks, required=False)
        yield from unknown_problems(self.callbacks, CALLBACKS)
        yield from (f"hooks: unknown name {name!r}" for name in self.hooks if name not in HOOKS)
        yield from (f"hooks: {name} must be a function" for name, hook in self.hooks.items() if not callable(hook))
        if self.wait_for is not None and not callable(self.wait_for):
            yield "wait_for must be a function that opens a gate and waits for it"
        if self.abort_controller is not None and not isinstance(self.abort_controller, AbortController):
            yield "abort_controller must be an AbortController"
