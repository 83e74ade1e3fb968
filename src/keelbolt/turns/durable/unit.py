"""A unit of work: collects changes and writes them in one atomic commit."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from keelbolt.errors import (
    BlobNotFound,
    CommitRefused,
    StorageBusy,
    TooLarge,
    TurnStorageNotFound,
    TurnTakenOver,
)
from keelbolt.kernel import Attach, Detach, FieldIn, Insert, Operation, Patch, Replace
from keelbolt.kernel.records import Scalar
from keelbolt.kernel.requests import MAX_OPERATIONS
from keelbolt.turns.codec import Kind
from keelbolt.turns.durable.clocks import Clocks, TenantClocks, Tick
from keelbolt.turns.durable.families import BYTES, COLLECTIONS, DELETED, KIND_OF, STREAMS, TURNS, WriteAddress
from keelbolt.turns.durable.readers import ConduitEntry
from keelbolt.turns.durable.records import Change, Stored, fold, read

TRIES = 1000  # without a pause, since a commit that waits loses the next race too; each refusal is another's commit


@dataclass(slots=True)
class _Slot:
    """One record of this unit: the stored state (if it was read) and the changes to it."""

    base: Stored | None = None
    changes: list[Change] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The content of a commit: its operations, the clocks that it increments, and the conduit bytes that it assigns."""

    operations: list[Operation]
    ticks: list[Tick]
    entries: list[ConduitEntry]


class Unit:
    """Collects changes to one tenant's records. Nothing is written before `commit`."""

    def __init__(self, clocks: Clocks, where: WriteAddress, now: int, *, turn: object = None) -> None:
        self.where = where
        self.scope = where.scope
        self.open = True
        self.turn = turn  # the turn of this unit; its address is looked up once for all calls
        self.clocks = clocks
        self._now = now
        self._slots: dict[tuple[Kind, str], _Slot] = {}  # in storage order
        self._entries: dict[str, ConduitEntry] = {}  # conduit bytes that records of this unit refer to
        self._also: list[Operation] = []

    async def __aenter__(self) -> Self:
        self._token = current.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.open = False
        current.reset(self._token)
        if kind is None:
            await self.commit()

    def seen(self, kind: Kind, key: str) -> Stored | None:
        """Return the record with this unit's changes, or None if the unit does not change it."""
        slot = self._slots.get((kind, key))
        return fold(slot.base, slot.changes) if slot is not None else None

    async def load(self, kind: Kind, key: str) -> Stored | None:
        """Return the stored record with this key, or None."""
        found = await self.scope.get(COLLECTIONS[kind], key)
        return read(kind, found) if found is not None else None

    def change(self, kind: Kind, key: str, change: Change, *, base: Stored | None = None) -> None:
        """Add a change to the record; raise at once if it is invalid. ``base`` is the stored state, if it was read."""
        slot = self._slots.get((kind, key))
        if slot is None:
            change.apply(base)
            self._slots[kind, key] = _Slot(base, [change])
        else:
            before = fold(slot.base, slot.changes)
            after = change.apply(before)
            slot.changes.append(change)
            if after is not None and not after.seq and (before is None or before.deleted):
                self._slots[kind, key] = self._slots.pop((kind, key))  # stored again: moves to the end of the order

    def own(self, entry: ConduitEntry) -> None:
        """Assign conduit bytes to a record of this unit: after the commit they are no longer reaped."""
        if entry.version:
            self._entries[entry.key] = entry

    def also(self, operation: Operation) -> None:
        """Add an operation to the commit."""
        self._also.append(operation)

    def named(self, kind: Kind, named: str) -> Iterator[Stored]:
        """Yield the live records with this name among those that this unit changes, newest first."""
        for (of, _), slot in reversed(self._slots.items()):
            if of == kind:
                state = fold(slot.base, slot.changes)
                if state is not None and not state.deleted and state.named == named:
                    yield state

    # ------------------------------------------------------------------------------------------------------ commit

    async def commit(self) -> None:
        """Write all changes in one commit. Raise errors that only the commit can detect, such as a duplicate id."""
        wrong: Sequence[Tick] = ()
        for _ in range(TRIES):
            numbers = await self.clocks.enter(self.scope, wrong)
            plan = None
            try:
                plan = self._plan(numbers)  # no await from here to the commit: call order is commit order
                if not plan.operations:
                    return
                _check_size(plan.operations)
                await self.scope.commit(*plan.operations)
            except CommitRefused as refusal:
                assert plan is not None
                wrong = _undone(plan, refusal)
                await self._learn(refusal)
            except BaseException:
                if plan is not None:
                    _undone(plan)
                raise
            else:
                for entry in plan.entries:
                    entry.version = 0
                return
            finally:
                numbers.leave()
        raise StorageBusy(
            f"other processes committed to this thread first, {TRIES} times; this unit wrote nothing. Try again"
        )

    def _plan(self, numbers: TenantClocks) -> _Plan:
        operations: list[Operation] = []
        ticks: dict[str, Tick] = {}
        seqs: dict[str, Iterator[int]] = {}
        owned: set[str] = set()
        for (kind, key), slot in self._slots.items():
            state = fold(slot.base, slot.changes)
            if state is None or state is slot.base:
                continue
            collection = COLLECTIONS[kind]
            if state.deleted and slot.base is not None:
                if not slot.base.deleted:
                    operations.append(Patch(collection, key, self._tombstone(state), slot.base.version))
                continue
            if not state.seq and state.owner not in ticks:
                tick = ticks[state.owner] = numbers.tick(state.owner, self._now)
                seqs[state.owner] = itertools.count(tick.first_seq)
                operations.append(tick.operation)
            body, fields = state.body(), state.fields(state.seq or next(seqs[state.owner]))
            if state.deleted:  # stored and deleted in one unit leaves a tombstone, as two commits would
                fields |= self._tombstone(state)
            if slot.base is None:
                operations.append(Insert(collection, key, body, fields))
            else:
                operations.append(Replace(collection, key, slot.base.version, body, fields))
            owned.update(state.entries)
            before = slot.base.blobs if slot.base is not None else ()
            if before or state.blobs:
                operations += holdings(collection, key, before=before, after=state.blobs)
        entries = [entry for entry in self._entries.values() if entry.key in owned]
        operations += (Patch(BYTES, entry.key, {"state": "committed"}, entry.version) for entry in entries)
        operations += self._also
        guard = self.where.guard if operations else None
        if guard is not None:
            operations.append(guard)
        return _Plan(operations, list(ticks.values()), entries)

    def _tombstone(self, state: Stored) -> dict[str, Scalar]:
        gone: dict[str, Scalar] = {"owner": DELETED, "seq": self._now}
        # Instructions are found by text, so a deleted one is unnamed; a deleted call still hides those of older turns.
        return {**gone, "named": None} if state.kind == "standing_instruction" else gone

    async def _learn(self, refusal: CommitRefused) -> None:
        """Read the record that the refusal names; raise if the changes can't be applied."""
        check = refusal.check
        match check:
            case Attach():
                raise TurnStorageNotFound(
                    "bytes that a record refers to were removed before the record was stored; write them again",
                    cause=BlobNotFound(check.digest),
                )
            case FieldIn():
                raise TurnTakenOver
            case Patch() if check.collection == TURNS:
                raise TurnTakenOver("this turn was erased while it ran; its later writes are not stored")
            case Patch() if check.collection == BYTES:
                del self._entries[check.key]  # rewritten or released meanwhile; the record holds the bytes itself
            case Insert() | Replace() | Patch() if check.collection != STREAMS:
                kind = KIND_OF[check.collection]
                slot = self._slots[kind, check.key]
                slot.base = await self.load(kind, check.key)
                fold(slot.base, slot.changes)
            case _:
                pass


def _undone(plan: _Plan, refusal: CommitRefused | None = None) -> Sequence[Tick]:
    """Undo the ticks of this plan, or return them to be read again if one of them caused the refusal."""
    if refusal is not None and any(refusal.check == tick.operation for tick in plan.ticks):
        return plan.ticks
    for tick in plan.ticks:
        tick.undone()
    return ()


def _check_size(operations: list[Operation]) -> None:
    if len(operations) > MAX_OPERATIONS:
        raise TooLarge(
            f"a unit of work has at most {MAX_OPERATIONS} operations; this one has {len(operations)}, "
            "and nothing is stored. Call ctx.checkpoint() in between, or make several units"
        )


def holdings(collection: str, key: str, *, before: Iterable[str], after: Iterable[str]) -> list[Operation]:
    """Return the operations after which a record holds the blobs ``after`` instead of ``before``."""
    holder = f"{collection}/{key}"
    old, new = dict.fromkeys(before), dict.fromkeys(after)
    return [
        *(Attach(digest, holder) for digest in new if digest not in old),
        *(Detach(digest, holder) for digest in old if digest not in new),
    ]


current: ContextVar[Unit | None] = ContextVar("keelbolt_turns_unit", default=None)
