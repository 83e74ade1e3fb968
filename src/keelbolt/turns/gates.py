"""Gates, at which a turn waits for external input: an approval, an answer, a payment.

Listeners of ``turn_gate_open`` get the live gate and may settle it; the first settlement wins. In memory a gate ends
with its process. A `GateStore` makes it durable: the gate is stored before listeners are called, and the first stored
settlement counts, from any process.

A user's message settles a gate as follows:

| the message has | it means |
|---|---|
| JSON with ``answer``: ``resolve`` (and ``value``), ``reject`` or ``abort`` (and ``reason``) | exactly that |
| other JSON | resolve, with it |
| the text ``reject`` or ``reject: why`` | reject |
| a word for yes | resolve with True, if the schema accepts it or there is none |
| a word for no, alone or with a reason | resolve with False, if the schema accepts it or there is none; else reject |
| text that the schema accepts: as text, as a member of its enum, as JSON | resolve, with that |
| other text | resolve, with the text |
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

from keelbolt.errors import (
    InvalidInitialTurnGateValue,
    InvalidTurnGateResolution,
    TurnGateAborted,
    TurnGateRejected,
    TurnGateTimeout,
)
from keelbolt.kernel.ids import new_id
from keelbolt.turns.abort import AbortSignal
from keelbolt.turns.events import Emitter, GateResult, TurnGateClosed, now
from keelbolt.turns.primitives import Moment
from keelbolt.turns.primitives.values import Wrong, refusing, text, time
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
    question = json.dumps([reason, payload, _described(schema)], sort_keys=True, default=repr)
    return hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:16]


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


# -------------------------------------------------------------------------------------------------------------- answers


Verb = Literal["resolve", "reject", "abort"]
VERBS: tuple[Verb, ...] = ("resolve", "reject", "abort")

YES = frozenset(("yes", "y", "yep", "yeah", "yup", "ok", "okay", "sure", "approve", "approved", "accept", "accepted"))
YES |= {"agree", "agreed", "confirm", "confirmed", "true"}
NO = frozenset(("no", "n", "nope", "nah", "never", "deny", "denied", "decline", "declined", "refuse", "refused"))
NO |= {"disagree", "cancel", "stop", "false"}
_REJECT = re.compile(r"reject(?:ed)?\s*(?:[.!]*\s*$|:\s*(?P<why>.*)$)", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(r"(?P<word>[a-z]+)\s*(?P<rest>$|[.!,;:\u2013\u2014-].*$)", re.IGNORECASE | re.DOTALL)
DECLINED = "the request was declined"
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """An answer to a gate. ``value`` is for resolve, ``reason`` for reject and abort."""

    verb: Verb
    value: Any = None
    reason: str = ""


def read_gate_answer(text: str, data: Sequence[Any], schema: Mapping[str, Any] | None = None) -> GateAnswer:
    """Return the answer that a message with this text and these JSON parts gives to a gate with this JSON Schema."""
    for value in data:
        if isinstance(value, Mapping) and value.get("answer") in VERBS:
            return GateAnswer(value["answer"], value.get("value"), str(value.get("reason") or ""))
        return GateAnswer("resolve", value)
    words = text.strip()
    if found := _REJECT.fullmatch(words):
        return GateAnswer("reject", reason=(found["why"] or "").strip() or DECLINED)
    takes = _taking(schema)
    for value in _readings(words, schema):
        if takes(value):
            return GateAnswer("resolve", value)
    if schema is not None and _said(words) is False:
        return GateAnswer("reject", reason=words)
    return GateAnswer("resolve", _json(words, words))


def reply_hint(schema: Mapping[str, Any] | None) -> str:
    """Return a hint on what the user can type; empty if any text is an answer."""
    if schema is None:
        return 'Reply "yes", "no", or in your own words.'
    takes = _taking(schema)
    if takes(True) and not takes("text"):
        return 'Reply "yes" or "no".'
    if isinstance(members := schema.get("enum"), list):
        return f"Reply with one of: {', '.join(map(str, members))}."
    match schema.get("type"):
        case "string":
            return ""
        case "integer" | "number":
            return 'Reply with a number, or "reject: why".'
        case "object":
            shape = {name: _kind(inner) for name, inner in dict(schema.get("properties", {})).items()}
            return f'Reply with JSON like {json.dumps(shape, ensure_ascii=False)}, or "reject: why".'
        case _:
            return 'Reply with JSON that fits the schema, or "reject: why".'


def _readings(words: str, schema: Mapping[str, Any] | None) -> Iterator[Any]:
    """Yield the values that the text can represent, the likeliest first."""
    said = _said(words)
    if said is not None:
        yield said
    if schema is None:
        yield _json(words, words)
        return
    yield words
    for member in schema.get("enum", ()):
        if isinstance(member, str) and member.casefold() == words.rstrip(".!").casefold():
            yield member
    value = _json(words, _MISSING)
    if value is not _MISSING:
        yield value


def _said(words: str) -> bool | None:
    """Return True for a yes, False for a no (a reason may follow), None for other text, such as a conditional yes."""
    found = _WORD.fullmatch(words)
    if found is None:
        return None
    word = found["word"].lower()
    if word in NO:
        return False
    return True if word in YES and not found["rest"].strip(" .!") else None


def _taking(schema: Mapping[str, Any] | None) -> Callable[[Any], bool]:
    if schema is None:
        return lambda _value: True
    try:
        check = checker(schema)
    except ValueError:  # beyond the supported keywords: the turn checks the answer
        return lambda value: _is(schema.get("type"), value)

    def takes(value: Any) -> bool:
        try:
            check(value)
        except (TypeError, ValueError):
            return False
        return True

    return takes


def _is(kind: object, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    kinds: dict[object, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "object": dict,
        "array": list,
    }
    return isinstance(value, kinds.get(kind, (int, float, dict, list)))


def _kind(schema: Any) -> str:
    kind = schema.get("type", "value") if isinstance(schema, Mapping) else "value"
    return f"<{kind}>"


def _json(words: str, otherwise: Any) -> Any:
    try:
        return json.loads(words)
    except ValueError:
        return otherwise
