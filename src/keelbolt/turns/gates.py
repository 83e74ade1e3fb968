"""Gates, at which a turn waits for external input: an approval, an answer, a payment.

Listeners of ``turn_gate_open`` get the live gate and may settle it; the first settlement wins. In memory a gate ends
with its process. A `GateStore` makes it durable: the gate is stored before listeners are called, and the first stored
settlement counts, from any process.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from keelbolt.errors import (
    InvalidInitialTurnGateValue,
    InvalidTurnGateResolution,
    TurnGateAborted,
    TurnGateRejected,
    TurnGateTimeout,
)
from keelbolt.kernel.ids import new_id
from keelbolt.turns.abort import AbortSignal
from keelbolt.turns.buses import Emitter
from keelbolt.turns.events import GateResult, TurnGateClosed, now
from keelbolt.turns.primitives import Moment
from keelbolt.turns.primitives.checks import Wrong, refusing, text, time
from keelbolt.turns.schemas import Check, Schema, checker, json_schema

if TYPE_CHECKING:
    from keelbolt.turns.context import TurnContext


@dataclass(frozen=True, slots=True)
class Settlement:
    """The settlement of a gate: a value or an error."""

    result: GateResult
    value: Any = None
    error: BaseException | None = None
    settled_at: datetime = field(default_factory=now)

    def unwrap(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class GateStore(Protocol):
    """Stores gates beyond the life of a process. The context is the turn's, as in every storage callback."""

    async def open(self, ctx: TurnContext, gate: TurnGate, /) -> Settlement | None:
        """Store the gate. If a gate of this id is already settled, return its settlement; the turn then does not wait.

        May set ``token`` and ``created_at``: a gate that was already open keeps its original values.
        """
        ...

    async def settle(self, ctx: TurnContext, gate: TurnGate, settlement: Settlement, /) -> Settlement:
        """Store the settlement, and return the one that counts: the first, which may be another process's."""
        ...

    async def wait(self, ctx: TurnContext, gate: TurnGate, /) -> Settlement:
        """Wait until another process settles the gate. Cancelled when it is settled here."""
        ...


@refusing(InvalidInitialTurnGateValue)
class TurnGate:
    """A gate that is open until it is settled, from this event loop or from any thread."""

    __slots__ = (
        "_check",
        "_loop",
        "_settled",
        "created_at",
        "id",
        "payload",
        "reason",
        "schema",
        "timeout_ms",
        "token",
        "turn_id",
    )

    def __init__(
        self,
        *,
        turn_id: str,
        id: str | None = None,  # noqa: A002
        reason: str,
        payload: Any = None,
        schema: Schema | None = None,
        timeout_ms: int | None = None,
        created_at: Moment | None = None,
    ) -> None:
        self.turn_id = text("turn_id", turn_id)
        self.id = new_id() if id is None else text("id", id)
        self.reason = text("reason", reason)
        self.payload = payload
        self.schema = schema
        self._check = _check(schema)
        self.timeout_ms = _timeout(timeout_ms)
        self.created_at = now() if created_at is None else time("created_at", created_at)
        self.token: str | None = None  # for settling a stored gate from another process
        self._loop = asyncio.get_running_loop()
        self._settled: asyncio.Future[Settlement] = self._loop.create_future()

    @property
    def settled(self) -> bool:
        return self._settled.done()

    def resolve(self, value: Any = None) -> None:
        """Continue the turn with this value. A value that does not match the schema is refused; the gate stays open."""
        if self.settled:
            return
        self.settle(Settlement("resolved", self.checked(value)))

    def checked(self, value: Any) -> Any:
        """Return the value as the schema converts it; raise InvalidTurnGateResolution if it does not match."""
        if self._check is None:
            return value
        try:
            return self._check(value)
        except (TypeError, ValueError) as wrong:
            raise InvalidTurnGateResolution(f"gate {self.id}: {wrong}; the gate stays open") from wrong

    def reject(self, error: BaseException | str) -> None:
        """Continue the turn by raising this error where it waits; a str is raised as TurnGateRejected."""
        known = error if isinstance(error, BaseException) else TurnGateRejected(str(error))
        self.settle(Settlement("rejected", error=known))

    def abort(self, reason: object = None) -> None:
        """Abort only this gate; the turn gets TurnGateAborted."""
        cause = reason if isinstance(reason, BaseException) else None
        words = f"gate {self.id} was aborted{f': {reason}' if reason is not None else ''}"
        self.settle(Settlement("aborted", error=TurnGateAborted(words, cause=cause)))

    def settle(self, settlement: Settlement) -> None:
        """Settle the gate, unless it is settled."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._settle_here(settlement)
        else:
            self._loop.call_soon_threadsafe(self._settle_here, settlement)

    def _settle_here(self, settlement: Settlement) -> None:
        if not self._settled.done():
            self._settled.set_result(settlement)

    async def wait(self) -> Settlement:
        return await asyncio.shield(self._settled)

    def __repr__(self) -> str:
        return f"TurnGate({self.id!r}, reason={self.reason!r})"


async def pass_gate(
    ctx: TurnContext, gate: TurnGate, *, signal: AbortSignal, emitter: Emitter, store: GateStore | None
) -> Any:
    """Open the gate, wait until it is settled, and return its value or raise its error."""
    settlement = await store.open(ctx, gate) if store is not None else None
    if settlement is None:
        emitter.emit("turn_gate_open", gate)
        try:
            settlement = await _settled(ctx, gate, signal, store)
        except asyncio.CancelledError:
            if store is None:  # a stored gate stays open for the process that continues the turn
                gate.abort("the turn was cancelled")
                _close(gate, await gate.wait(), emitter)
            raise
    gate.settle(settlement)
    _close(gate, settlement, emitter)
    return settlement.unwrap()


def question(*, reason: object, payload: Any = None, schema: Any = None, **_rest: Any) -> str:
    """Return a short digest of the question, always the same for the same question."""
    told = json.dumps([reason, payload, _described(schema)], sort_keys=True, default=repr)
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _described(schema: Any) -> Any:
    try:
        return None if schema is None else json_schema(schema)
    except Exception:  # noqa: BLE001 - TurnGate reports schema errors
        return None


def _close(gate: TurnGate, settlement: Settlement, emitter: Emitter) -> None:
    closed = TurnGateClosed(
        gate_id=gate.id, turn_id=gate.turn_id, result=settlement.result, settled_at=settlement.settled_at
    )
    emitter.emit("turn_gate_closed", closed)


async def _settled(ctx: TurnContext, gate: TurnGate, signal: AbortSignal, store: GateStore | None) -> Settlement:
    loop = asyncio.get_running_loop()
    # Deferred, so that an earlier abort settles the gate in the next loop iteration, like a later one.
    forget = signal.on_abort(lambda reason: _soon(loop, gate, reason))
    timer = None
    if gate.timeout_ms is not None:  # a stored gate's timeout runs from its first opening
        past = 0.0 if store is None else max(0.0, (now() - gate.created_at).total_seconds())  # the wall clock may jump
        timer = loop.call_later(max(0.0, gate.timeout_ms / 1000 - past), _expire, gate)
    elsewhere = asyncio.ensure_future(store.wait(ctx, gate)) if store is not None else None
    here = asyncio.ensure_future(gate.wait())
    try:
        await asyncio.wait({here, *([elsewhere] if elsewhere is not None else [])}, return_when=asyncio.FIRST_COMPLETED)
        if elsewhere is not None and elsewhere.done():
            return elsewhere.result()
        return here.result() if store is None else await store.settle(ctx, gate, here.result())
    finally:
        forget()
        if timer is not None:
            timer.cancel()
        for waiting in (here, elsewhere):
            await _ended(waiting)


def _soon(loop: asyncio.AbstractEventLoop, gate: TurnGate, reason: object) -> None:
    loop.call_soon_threadsafe(gate.abort, reason)


async def _ended(waiting: asyncio.Future[Settlement] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.cancel()
        await asyncio.wait({waiting})


def _expire(gate: TurnGate) -> None:
    words = f"gate {gate.id} timed out: it was not settled within {gate.timeout_ms} ms"
    gate.settle(Settlement("timeout", error=TurnGateTimeout(words)))


def _check(schema: Schema | None) -> Check | None:
    if schema is None:
        return None
    try:
        return checker(schema)
    except ValueError as wrong:
        raise Wrong(f"schema: {wrong}") from None


def _timeout(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Wrong(f"timeout_ms must be an integer of at least 1, or None, not {value!r}")
    return value
