"""The context of a turn, passed to the turn's middleware and to every storage callback, and the progress of a turn."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from keelbolt.eager import Started
from keelbolt.errors import InvalidInitialRegistryValue, InvalidTurnContext, TurnError
from keelbolt.kernel.ids import new_id
from keelbolt.turns.abort import AbortController, AbortSignal
from keelbolt.turns.events import Emitter, Kind, Op
from keelbolt.turns.gates import GateStore, TurnGate, pass_gate, question
from keelbolt.turns.primitives import Message, Tokenizable, ToolCall
from keelbolt.turns.registry import Registry
from keelbolt.turns.sets import SetWrite, TurnSets
from keelbolt.turns.surface import BaseContext
from keelbolt.turns.tools import ToolRegistry

if TYPE_CHECKING:
    from keelbolt.turns.durable.scope import TurnScope


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInput:
    """The input of a turn. It has no history and no user: hydrate the history, and put the user into the stash.

    ``incoming`` are the messages that the turn answers: they are stored before the input pipeline runs, and
    ``ctx.incoming`` has them. ``scope`` identifies tenant and thread of the turn (a `TurnScope`, or a dict with tenant
    and thread); the stash has it under "scope". A turn with a ``turn_id`` can be started again under it: with a
    ``progress_store`` it continues after the last stored iteration.
    """

    system_prompt: str | Tokenizable
    standing_instructions: Sequence[str | Tokenizable] = ()
    stash: Mapping[str, Any] | None = None
    abort_controller: AbortController | None = None
    turn_id: str | None = None
    incoming: Sequence[Message] = ()
    scope: TurnScope | Mapping[str, str] | None = None


class TurnContext(BaseContext):
    """One turn. Its sets begin empty (except instructions, from the input), and writes go directly to storage.

    Writes here change no set, fire no hook and are not retried: errors of the callback propagate.
    """

    __slots__ = (
        "_callbacks",
        "_gates",
        "_making",
        "_opened",
        "_stage",
        "id",
        "incoming",
        "iterations_done",
        "progress",
        "stash",
        "system_prompt",
        "tools",
    )

    def __init__(
        self,
        turn_input: TurnInput,
        *,
        callbacks: Mapping[str, Callable[..., Any]],
        tools: ToolRegistry,
        emitter: Emitter,
        gate_store: GateStore | None = None,
        progress_store: ProgressStore | None = None,
    ) -> None:
        if not isinstance(turn_input, TurnInput):
            raise InvalidTurnContext(f"a turn takes a TurnInput, not {type(turn_input).__name__}")
        self.id = _turn_id(turn_input.turn_id)
        self.iterations_done = 0  # in earlier runs of this turn
        self._stage = "turn"
        self._opened: Counter[str] = Counter()  # gates without an id, by question
        self.system_prompt = _prompt(turn_input.system_prompt)
        self.holdings = TurnSets(instructions=_instructions(turn_input.standing_instructions), turn_id=self.id)
        self.stash = _stash(turn_input.stash, turn_input.scope)
        self.incoming = _incoming(turn_input.incoming)
        self.tools = tools
        controller = turn_input.abort_controller
        if controller is not None and not isinstance(controller, AbortController):
            raise InvalidTurnContext(f"abort_controller must be an AbortController, not {type(controller).__name__}")
        self._controller = AbortController() if controller is None else controller
        self._callbacks = callbacks
        self._emitter = emitter
        self._gates = gate_store
        self._making: dict[asyncio.Future[Any], str] = {}  # writes in progress that were not awaited yet
        self.progress = progress_store if turn_input.turn_id is not None else None

    @property
    def turn_id(self) -> str:
        return self.id

    async def _pass(self, **gate: Any) -> Any:
        return await self.pass_gate(self.abort_signal, **gate)

    async def pass_gate(self, signal: AbortSignal, **fields: Any) -> Any:
        """Wait at a gate until it is settled or the signal aborts: the turn's own, or that of its dispatch."""
        if self._gates is not None and fields.get("id") is None:
            asked = question(**fields)
            self._opened[asked] += 1
            fields["id"] = f"{self._stage}.{asked}.{self._opened[asked]}"
        gate = TurnGate(turn_id=self.id, **fields)
        return await pass_gate(self, gate, signal=signal, emitter=self._emitter, store=self._gates)

    def begin_iteration(self, iteration: int) -> None:
        """Start an iteration. Gates are numbered per iteration, so that a repeated iteration reopens its gates."""
        self._stage = str(iteration)
        self._opened.clear()

    async def replace_tool_call_group(self, ids: Sequence[str], replacements: Sequence[ToolCall]) -> Any:
        """Replace tool calls: in one step if the storage supports it, otherwise deleted and stored one by one.

        If that fails midway, the error has ``deleted_ids``: the ids already deleted.
        """
        return await self._replace(ids, replacements, together="replace_tool_call_group_callback" in self._callbacks)

    async def perform(self, write: SetWrite) -> Any:
        """Call the callback of a write that a dispatch has queued."""
        if write.op == "replace":
            return await self.replace_tool_call_group(*write.value)
        return await self._call(write.callback, write.value)

    def _write(self, op: Op, kind: Kind, value: Any) -> Coroutine[Any, Any, Any]:
        """Call the storage now. Writes that are not awaited are finished before the next stage of the turn."""
        answer = self._callbacks[f"{op}_{kind}_callback"](self, value)
        if not inspect.isawaitable(answer):
            return Started(lambda: _given(answer))
        making = asyncio.ensure_future(answer)
        self._making[making] = f"{op} {kind}"
        making.add_done_callback(self._made)

        async def finish() -> Any:
            self._making.pop(making, None)  # the caller gets the error
            return await making

        return Started(finish)

    def _made(self, making: asyncio.Future[Any]) -> None:
        if making in self._making and not making.cancelled() and making.exception() is None:
            del self._making[making]

    async def finish_writes(self) -> None:
        """Wait for the writes that were not awaited; raise the first error among them."""
        while self._making:
            making, name = next(iter(self._making.items()))
            try:
                await asyncio.wait({making})
            finally:
                self._making.pop(making, None)
            if (error := making.exception()) is not None:
                raise TurnError(f"{name}, which was not awaited, failed: {error}", cause=error)

    async def _call(self, callback: str, *arguments: Any) -> Any:
        answer = self._callbacks[callback](self, *arguments)
        return await answer if inspect.isawaitable(answer) else answer


async def _given(answer: Any) -> Any:
    return answer


def _turn_id(value: object) -> str:
    if value is None:
        return new_id()
    if not isinstance(value, str) or not value:
        raise InvalidTurnContext(f"turn_id must be a non-empty str, or None for a new id, not {value!r}")
    return value


def _prompt(value: object) -> Tokenizable:
    if not isinstance(value, str | Tokenizable) or not value:
        raise InvalidTurnContext("system_prompt must be a non-empty str or Tokenizable")
    return Tokenizable.of(value).copy()


def _instructions(value: object) -> list[str | Tokenizable]:
    if isinstance(value, str | Tokenizable) or not isinstance(value, Iterable):
        raise InvalidTurnContext(f"standing_instructions must be a list of texts, not {type(value).__name__}")
    found = list(value)
    for item in found:
        if not isinstance(item, str | Tokenizable) or not item:
            raise InvalidTurnContext("standing_instructions must contain non-empty texts (str or Tokenizable)")
    return found


def _incoming(value: object) -> tuple[Message, ...]:
    if isinstance(value, Message):
        return (value,)
    found = tuple(value) if isinstance(value, Iterable) else (value,)
    for each in found:
        if not isinstance(each, Message):
            raise InvalidTurnContext(f"incoming must be a list of Message, not of {type(each).__name__}")
    return found


def _stash(value: Any, scope: object = None) -> Registry:
    try:
        return Registry(value if scope is None else {**(value or {}), "scope": scope})
    except InvalidInitialRegistryValue as wrong:
        raise InvalidTurnContext(f"stash: {wrong}") from wrong


# ------------------------------------------------------------------------------------------------------------- progress


@dataclass(frozen=True, slots=True)
class TurnProgress:
    """Progress of a turn, stored with its iterations: an interrupted turn continues after the last stored one.

    ``iterations`` counts the stored iterations; ``ended``: the last one was acknowledged, no dispatch is left.
    """

    iterations: int = 0
    ended: bool = False


class ProgressStore(Protocol):
    """Stores the progress of turns that were given a ``turn_id``."""

    async def begin(self, ctx: TurnContext, /) -> TurnProgress:
        """Make this process the runner of the turn; writes of another process that still runs it are then refused."""
        ...

    async def reached(self, ctx: TurnContext, progress: TurnProgress, /) -> None:
        """Store the progress. Called within the unit of work of each iteration, so that both are stored or neither."""
        ...

    def leave(self, ctx: TurnContext, /) -> None:
        """End the run, after success or failure."""
        ...
