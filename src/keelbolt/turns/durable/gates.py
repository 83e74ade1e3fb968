"""Gates that outlive their process: any process with access to the storage can settle a gate; the first one wins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from keelbolt.errors import (
    CommitRefused,
    InvalidTurnGateResolution,
    InvalidValue,
    TurnGateAborted,
    TurnGateRejected,
    TurnGateTimeout,
    TurnStorageDuplicateId,
    TurnStorageNotFound,
)
from keelbolt.kernel import Append, Claim, Draft, Enqueue, Insert, Kernel, Query, Record, Replace, Scope
from keelbolt.turns.durable.families import GATE_FAMILIES, GATE_LOG, GATES, WAKES, TurnAddress
from keelbolt.turns.durable.gate_records import GateState, StoredGate, new_gate, read_gate, read_token
from keelbolt.turns.durable.retention import scopes
from keelbolt.turns.durable.scope import TurnLike, under
from keelbolt.turns.events import now
from keelbolt.turns.gates import GateAnswer, Settlement, TurnGate

LOOK_SECONDS = 30.0  # poll interval of a waiting process, in case a notification is lost
PAGE = 100


class DurableGates:
    """`storage.gates`: the ``gate_store`` of a runner, and the API to settle gates from outside of the turn.

        gate = await storage.gates.resolve(token, {"amount": 20})

    ``resolve``, ``reject`` and ``abort`` return the settled gate, also if another caller has settled it first.
    """

    def __init__(self, kernel: Kernel, place: Callable[[TurnLike], TurnAddress] | None = None) -> None:
        self._kernel = kernel
        self._place = place

    async def declare(self) -> None:
        """Declare the collections of gates in a kernel that was opened without them."""
        await self._kernel.declare(*GATE_FAMILIES)

    # --------------------------------------------------------------------------------------------- for other callers

    async def get(self, token: str) -> StoredGate:
        """Return the gate with this token. Raise TurnStorageNotFound if there is none."""
        return read_gate((await self._found(token))[1])

    async def list(
        self, *, tenant: str | None = None, state: GateState = "open", limit: int = PAGE
    ) -> list[StoredGate]:
        """Return gates of one tenant or of all, oldest first within a tenant."""
        if state not in ("open", "settled"):
            raise InvalidValue(f"the state of a gate must be open or settled, not {state!r}")
        found: list[StoredGate] = []
        query = Query(GATES, {"state": state}, order="at")
        for scope in await scopes(self._kernel, tenant):
            found += [read_gate(record) async for record in scope.scan(query, limit=limit - len(found))]
        return found

    async def resolve(self, token: str, value: Any = None) -> StoredGate:
        """Continue the turn with this value. An invalid value is refused, and the gate stays open.

        If a task asks the gate's question, the task continues: any process with its turn worker wakes it.
        """
        return await self._settle(token, Settlement("resolved", value))

    async def answer(self, token: str, answer: GateAnswer) -> StoredGate:
        """Settle the gate with the answer in a message of its task; that message wakes the task."""
        settlement = Settlement("resolved", answer.value)
        if answer.verb == "reject":
            settlement = Settlement("rejected", error=TurnGateRejected(answer.reason or None))
        elif answer.verb == "abort":
            settlement = Settlement("aborted", error=TurnGateAborted(answer.reason or None))
        return await self._settle(token, settlement, wakes=False)

    async def reject(self, token: str, error: BaseException | str) -> StoredGate:
        """Continue the turn by raising this error where it waits (as TurnGateRejected with the same text)."""
        known = error if isinstance(error, BaseException) else TurnGateRejected(str(error))
        return await self._settle(token, Settlement("rejected", error=known))

    async def abort(self, token: str, reason: object = None) -> StoredGate:
        """Abort this gate; the turn gets TurnGateAborted."""
        words = f"the gate was aborted{f': {reason}' if reason is not None else ''}"
        return await self._settle(token, Settlement("aborted", error=TurnGateAborted(words)))

    async def _settle(self, token: str, settlement: Settlement, *, wakes: bool = True) -> StoredGate:
        while True:
            scope, record = await self._found(token)
            gate = read_gate(record)
            if gate.settled:
                return gate
            settlement = _in_time(gate, settlement)
            if settlement.result == "resolved":
                gate.check(settlement.value)
            settled = gate.settled_by(settlement)
            if await self._write(scope, record, settled, wakes=wakes and settled.task_id is not None):
                return settled

    async def _found(self, token: str) -> tuple[Scope, Record]:
        place, secret = read_token(token)
        scope = self._kernel.scoped(place)
        page = await scope.find(Query(GATES, {"secret": secret}), limit=1)
        for record in page.records:
            return scope, record
        raise TurnStorageNotFound("no gate has this token")

    async def _write(self, scope: Scope, record: Record, gate: StoredGate, *, wakes: bool = False) -> bool:
        """Write the gate if it is unchanged; return whether it was. ``wakes``: a turn worker wakes the gate's task."""
        fields = {**record.fields, "state": "settled" if gate.settled else "open"}
        more = [Enqueue(WAKES, record.key)] if wakes else []
        try:
            await scope.commit(
                Replace(GATES, record.key, record.version, gate.body(), fields),
                Append(GATE_LOG, record.key, (Draft(gate.result or "reopened", b""),)),
                *more,
            )
        except CommitRefused:
            return False
        return True

    async def due(self, claim: Claim) -> StoredGate | None:
        """Return the gate of this `WAKES` item, settled if it timed out; None if it no longer exists."""
        record = await claim.scope.get(GATES, claim.key)
        if record is None:
            return None
        gate = read_gate(record)
        left = gate.seconds_left
        if not gate.settled and left is not None and left <= 0:
            return await self._settle(gate.token, _timeout(gate), wakes=False)
        return gate

    # -------------------------------------------------------------------------------------------------- for the turn

    async def open(self, ctx: TurnLike, gate: TurnGate) -> Settlement | None:
        place, key = self._key(ctx, gate)
        about = ctx.stash.get("task")
        fresh = new_gate(gate, scope=place.scope, tenant=place.tenant, thread=place.thread, about=about)
        stored = await self._inserted(place, key, fresh)
        if not stored.same_question(read_back(fresh)):
            raise TurnStorageDuplicateId(
                f"gate {gate.id!r} of this turn was first opened with a different question; use another id"
            )
        gate.token, gate.created_at = stored.token, stored.created_at
        return await self._answered(place.scope, gate, stored) if stored.settled else None

    async def settle(
        self, ctx: TurnLike, gate: TurnGate, settlement: Settlement, *, asking: bool = False
    ) -> Settlement:
        """Store the settlement. ``asking``: the task asks this question, so a turn worker must wake it."""
        place, key = self._key(ctx, gate)
        while True:
            record = await place.scope.get(GATES, key)
            if record is None:
                return _erased()
            stored = read_gate(record)
            if stored.settled:
                return stored.settlement()
            wakes = (asking or settlement.result == "timeout") and stored.task_id is not None
            if await self._write(place.scope, record, stored.settled_by(settlement), wakes=wakes):
                return settlement

    async def wait(self, ctx: TurnLike, gate: TurnGate) -> Settlement:
        place, key = self._key(ctx, gate)
        with place.scope.watch(GATE_LOG, key) as watch:
            while True:
                record = await place.scope.get(GATES, key)
                if record is None:
                    return _erased()
                stored = read_gate(record)
                if stored.settled:
                    answer = await self._answered(place.scope, gate, stored)
                    if answer is not None:
                        return answer
                await watch.wait(LOOK_SECONDS)

    async def _inserted(self, place: TurnAddress, key: str, fresh: StoredGate) -> StoredGate:
        """Insert the gate, or return the one already stored under this key."""
        more: list[Enqueue] = []
        if fresh.deadline is not None and fresh.task_id is not None:  # no process may be waiting for it by then
            left = (fresh.deadline - now()).total_seconds()
            more = [Enqueue(WAKES, key, ready_in=max(0.0, left))]
        while True:
            try:
                await place.scope.commit(
                    *place.guards,
                    Insert(GATES, key, fresh.body(), fresh.fields(place.owner, place.turn)),
                    *more,
                )
            except CommitRefused as refusal:
                place.check(refusal)
                record = await place.scope.get(GATES, key)
                if record is not None:
                    return read_gate(record)
            else:
                return fresh

    async def _answered(self, scope: Scope, gate: TurnGate, stored: StoredGate) -> Settlement | None:
        """Return the settlement with the value converted by the gate's schema, or None if the schema refuses it."""
        settlement = stored.settlement()
        if settlement.result != "resolved":
            return settlement
        try:
            return replace(settlement, value=gate.checked(settlement.value))
        except InvalidTurnGateResolution:
            record = await scope.get(GATES, stored.key)
            if record is not None and record.version == stored.version:
                await self._write(scope, record, stored.reopened())
            return None

    def _key(self, ctx: TurnLike, gate: TurnGate) -> tuple[TurnAddress, str]:
        if self._place is None:
            raise InvalidValue("these gates can only be read and settled; pass storage.gates to the runner")
        place = self._place(ctx)
        return place, under(place.owner, gate.turn_id, gate.id)


def read_back(gate: StoredGate) -> StoredGate:
    """Return the gate as it will be read from storage: tuples in the payload become lists."""
    return read_gate(Record(GATES, "", 0, gate.body()))


def _in_time(gate: StoredGate, settlement: Settlement) -> Settlement:
    """Return a timeout instead of a settlement after the deadline, even if no process noticed the deadline."""
    if gate.deadline is None or settlement.settled_at < gate.deadline:
        return settlement
    return _timeout(gate)


def _timeout(gate: StoredGate) -> Settlement:
    assert gate.deadline is not None
    words = f"gate {gate.id} timed out: it was not settled by {gate.deadline.isoformat()}"
    return Settlement("timeout", error=TurnGateTimeout(words), settled_at=now())


def _erased() -> Settlement:
    return Settlement("aborted", error=TurnGateAborted("the gate is gone: its turn was erased"))
