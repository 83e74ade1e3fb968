"""Stores, changes, deletes and fetches the records of turns (the implementation of the callbacks), and their progress.

`WritePolicy` sets the behaviour that the contract leaves open.

Progress is one record for each turn with a given id, written in the commits of its iterations. ``state`` is
``running``, ``ended`` (acknowledged), or ``failed``: the turn stopped before its end, and no process continues it
unless a caller starts it again. ``run`` counts the starts of the turn. Every commit of a run checks it, so that a
process that was presumed dead and returns can no longer write.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, get_args

from keelbolt.errors import CommitRefused, InvalidInitialValue, InvalidValue, TurnStorageCorrupt
from keelbolt.kernel import Insert, Kernel, Patch, Query, Record, Scalar
from keelbolt.turns.callbacks import FetchPolicy, Limit, TopK, Window, asked
from keelbolt.turns.codec import KINDS, PER_TURN, PLURALS, TYPES, Kind, TurnCodec
from keelbolt.turns.context import TurnProgress
from keelbolt.turns.durable.blobs import Blobs
from keelbolt.turns.durable.clocks import Clocks
from keelbolt.turns.durable.families import COLLECTIONS, TURNS, TurnAddress, WriteAddress
from keelbolt.turns.durable.records import Duplicates, Mutate, RemoveRecord, Stored, StoreRecord, read
from keelbolt.turns.durable.scope import Reach, TurnLike, TurnScope, owner_of, tenant_scope, under
from keelbolt.turns.durable.unit import Unit, current
from keelbolt.turns.primitives import Tokenizable

PAGE = 500


class TurnStore:
    """Implements the durable callbacks. Each call joins the open unit of work, or is a unit by itself."""

    def __init__(
        self, kernel: Kernel, codec: TurnCodec, blobs: Blobs, policy: WritePolicy, clock: Callable[[], int]
    ) -> None:
        self.kernel = kernel
        self.codec = codec
        self.blobs = blobs
        self.policy = policy
        self.clocks = Clocks()
        self.now = clock
        self._owners = lru_cache(256)(self._owners_in)  # of the threads in use

    def where(self, scope: TurnScope, turn: str, run: int = 0) -> WriteAddress:
        return WriteAddress(turn, tenant_scope(self.kernel, scope.tenant), self._owners(scope), run)

    def _owners_in(self, scope: TurnScope) -> Mapping[Kind, str]:
        return {kind: owner_of(scope, self.policy.reach(kind)) for kind in KINDS}

    def joined(self, where: WriteAddress) -> Unit | None:
        """Return the open unit of work, if it belongs to this turn; other turns' writes are not part of it."""
        unit = current.get()
        return unit if unit is not None and unit.open and unit.where.same_turn(where) else None

    def unit(self, where: WriteAddress, turn: object = None) -> AbstractAsyncContextManager[Unit]:
        """Return the open unit of work, or a new one that commits at its end; ``turn`` is the turn it belongs to."""
        unit = self.joined(where)
        if unit is not None:
            return nullcontext(unit)
        return Unit(self.clocks, where, self.now(), turn=turn)

    # ------------------------------------------------------------------------------------------------------ writing

    async def store(self, where: WriteAddress, kind: Kind, value: Any) -> None:
        check_value(kind, value)
        unit = self.joined(where)
        if unit is None:
            async with self.unit(where):
                await self.store(where, kind, value)
            return
        new = await self._new(unit, where, kind, value)
        if kind == "standing_instruction":  # storing it again changes nothing, so it keeps its position
            unit.change(kind, new.key, StoreRecord(new, "keep"), base=await unit.load(kind, new.key))
        else:  # the commit detects a duplicate id
            unit.change(kind, new.key, StoreRecord(new, self.policy.duplicates))

    async def mutate(self, where: WriteAddress, kind: Kind, value: Any) -> None:
        check_value(kind, value)
        if kind == "standing_instruction" and (not isinstance(value, Tokenizable) or value.key is None):
            await self.store(where, kind, value)  # without a key, the instruction to replace is unknown
            return
        async with self.unit(where) as unit:
            found = await self._find(unit, where, kind, _id(value))
            new = await self._new(unit, where, kind, value, key=found.key if found is not None else None)
            unit.change(kind, new.key, Mutate(new, upsert=self.policy.upsert), base=found)

    async def delete(self, where: WriteAddress, kind: Kind, key: Any) -> None:
        async with self.unit(where) as unit:
            if kind == "standing_instruction":
                check_value(kind, key)
                found = await self._find(unit, where, kind, _id(key)) or await self._saying(unit, where, key)
            elif isinstance(key, str):
                found = await self._find(unit, where, kind, key)
            else:
                raise InvalidValue(f"a {kind} is deleted by its id, which must be a str, not {type(key).__name__}")
            if found is not None:
                unit.change(kind, found.key, RemoveRecord(), base=found)

    async def replace_tool_calls(self, where: WriteAddress, ids: Sequence[str], replacements: Sequence[Any]) -> None:
        """Delete and store tool calls as one change; a replacement with the id of a deleted call is a new record."""
        async with self.unit(where):
            for each in ids:
                await self.delete(where, "tool_call", each)
            for value in replacements:
                await self.store(where, "tool_call", value)

    async def _new(self, unit: Unit, where: WriteAddress, kind: Kind, value: Any, *, key: str | None = None) -> Stored:
        kept = await self.blobs.keep(unit, value, self.codec.resolvers)
        owner, known, now = where.owners[kind], _id(value), self.now()
        named = None
        if kind in PER_TURN:
            named = under(owner, known)
        elif kind == "standing_instruction":
            named = under(owner, _text_id(value))
        return Stored(
            kind=kind,
            key=key if key is not None else self._key(where, kind, known),
            id=known,
            turn=where.turn,
            owner=owner,
            data=self.codec.encode(value, kept.describe),
            blobs=kept.digests,
            created=now,
            updated=now,
            entries=kept.entries,
            named=named,
        )

    # ----------------------------------------------------------------------------------------------------- reading

    async def fetch(self, where: WriteAddress, kind: Kind) -> list[Any]:
        """Return the live records in storage order, within the limits of the policy."""
        limit = asked(PLURALS[kind], self.policy.fetch)
        records = await self._records(where, kind, limit)
        resolvers = self.blobs.resolvers(where.scope, self.codec.resolvers)
        found = sorted((read(kind, record) for record in records), key=lambda stored: stored.seq)
        return [decoded(self.codec, stored, resolvers) for stored in found]

    async def fetch_of_turn(self, where: WriteAddress, kind: Kind) -> list[Any]:
        """Return the records that this turn has stored, among the last PAGE of its thread."""
        records = await self._records(where, kind, Window(PAGE))
        resolvers = self.blobs.resolvers(where.scope, self.codec.resolvers)
        found = [stored for stored in (read(kind, record) for record in records) if stored.turn == where.turn]
        return [decoded(self.codec, stored, resolvers) for stored in sorted(found, key=lambda stored: stored.seq)]

    async def _records(self, where: WriteAddress, kind: Kind, limit: Limit) -> list[Record]:
        wanted = limit.k if isinstance(limit, TopK) else limit.last
        order = limit.by if isinstance(limit, TopK) else "seq"
        query = Query(COLLECTIONS[kind], {"owner": where.owners[kind]}, order=order, newest_first=wanted is not None)
        return [record async for record in where.scope.scan(query, limit=wanted, page=PAGE)]

    def _key(self, where: WriteAddress, kind: Kind, known: str) -> str:
        owner = where.owners[kind]
        return under(owner, where.turn, known) if kind in PER_TURN else under(owner, known)

    async def _find(self, unit: Unit, where: WriteAddress, kind: Kind, known: str) -> Stored | None:
        """Return the live record with this id: of this turn, or else the last one of any turn.

        If that one was deleted, return None: a repeated delete must not affect an older turn's record.
        """
        key = self._key(where, kind, known)
        found = unit.seen(kind, key) or await unit.load(kind, key)
        if found is None and kind in PER_TURN:
            found = await self._last(unit, where, kind, known)
        return found if found is not None and not found.deleted else None

    async def _last(self, unit: Unit, where: WriteAddress, kind: Kind, known: str) -> Stored | None:
        """Return the last record with this id of any turn; a deleted one hides those before it."""
        named = under(where.owners[kind], known)
        for found in unit.named(kind, named):
            return found
        query = Query(COLLECTIONS[kind], {"named": named}, order="place", newest_first=True)
        for record in (await where.scope.find(query, limit=1)).records:
            return unit.seen(kind, record.key) or read(kind, record)
        return None

    async def _saying(self, unit: Unit, where: WriteAddress, text: str | Tokenizable) -> Stored | None:
        """Return the last standing instruction with this text, regardless of its key."""
        kind: Kind = "standing_instruction"
        named = under(where.owners[kind], _text_id(text))
        found = list(unit.named(kind, named))
        query = Query(COLLECTIONS[kind], {"named": named}, order="place")
        stored = where.scope.scan(query)
        found += [read(kind, record) async for record in stored if unit.seen(kind, record.key) is None]
        return max(found, key=lambda each: each.seq or math.inf, default=None)


def decoded(codec: TurnCodec, stored: Stored, resolvers: Any) -> Any:
    """Return the stored value. Raise TurnStorageCorrupt if it can't be decoded."""
    data = {**stored.data, "turn_id": stored.turn} if stored.kind in PER_TURN else stored.data
    try:
        return codec.decode(stored.kind, data, resolvers)
    except (InvalidInitialValue, KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise TurnStorageCorrupt(
            f"the stored {stored.kind} {stored.id!r} is damaged; restore it from a backup", cause=wrong
        ) from wrong


def check_value(kind: Kind, value: object) -> None:
    if kind == "standing_instruction":
        if not isinstance(value, str | Tokenizable) or not str(value):
            raise InvalidValue(f"a standing instruction must be a non-empty str or Tokenizable, not {value!r}")
    elif not isinstance(value, TYPES[kind]):
        raise InvalidValue(f"a {kind} must be a {TYPES[kind].__name__}, not {type(value).__name__}")


def _id(value: Any) -> str:
    """Return the id of a value; of a standing instruction its key, or else a digest of its text."""
    if isinstance(value, Tokenizable) and value.key is not None:
        return f"key:{value.key}"
    return _text_id(value) if isinstance(value, str | Tokenizable) else str(value.id)


def _text_id(value: str | Tokenizable) -> str:
    return f"text:{hashlib.sha256(str(value).encode('utf-8', 'surrogatepass')).hexdigest()}"


# ------------------------------------------------------------------------------------------------------------- policies


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """``duplicates``: a different payload under a stored id is refused, or ignored, or replaces the stored one.

    ``upsert``: mutate stores a missing record instead of raising. ``memories`` and ``standing_instructions`` are
    shared by an agent of the tenant, by the whole tenant, or only within the thread.
    """

    fetch: FetchPolicy = field(default_factory=FetchPolicy)
    duplicates: Duplicates = "refuse"
    upsert: bool = False
    memories: Reach = "agent"
    standing_instructions: Reach = "agent"

    def __post_init__(self) -> None:
        if not isinstance(self.fetch, FetchPolicy):
            raise InvalidValue(f"fetch must be a FetchPolicy, not {type(self.fetch).__name__}")
        for name, value, allowed in (
            ("duplicates", self.duplicates, get_args(Duplicates)),
            ("memories", self.memories, get_args(Reach)),
            ("standing_instructions", self.standing_instructions, get_args(Reach)),
        ):
            if value not in allowed:
                raise InvalidValue(f"{name} must be one of {', '.join(allowed)}, not {value!r}")

    def reach(self, kind: Kind) -> Reach:
        if kind == "memory":
            return self.memories
        return self.standing_instructions if kind == "standing_instruction" else "thread"


# ------------------------------------------------------------------------------------------------------------- progress


class DurableProgress:
    """`storage.progress`: the ``progress_store`` of a runner."""

    def __init__(self, place: Callable[[TurnLike], TurnAddress], now: Callable[[], int]) -> None:
        self._place = place
        self._now = now
        self._runs: dict[int, int] = {}  # by ``id()`` of a running context

    def run_of(self, ctx: TurnLike) -> int:
        """Return the run number of this context; 0: not tracked."""
        return self._runs.get(id(ctx), 0)

    async def latest_run(self, ctx: TurnLike) -> int:
        """Return the number of the last run of this turn that any process has begun; 0: none."""
        place = self._place(ctx)
        record = await place.scope.get(TURNS, place.turn)
        return int(record.fields.get("run") or 0) if record is not None else 0

    async def begin(self, ctx: TurnLike) -> TurnProgress:
        place = self._place(ctx)
        while True:
            record = await place.scope.get(TURNS, place.turn)
            found = record.fields if record is not None else {}
            run = int(found.get("run") or 0) + 1
            ended = found.get("state") == "ended"
            state = "ended" if ended else "running"
            fields: dict[str, Scalar] = {"run": run, "at": self._now(), "owner": place.owner, "state": state}
            operation: Insert | Patch
            if record is None:
                operation = Insert(TURNS, place.turn, b"", {**fields, "iterations": 0})
            else:
                operation = Patch(TURNS, place.turn, fields, record.version)
            try:
                await place.scope.commit(operation)
            except CommitRefused:
                continue
            self._runs[id(ctx)] = run
            return TurnProgress(int(found.get("iterations") or 0), ended=ended)

    async def reached(self, ctx: TurnLike, progress: TurnProgress) -> None:
        place = self._place(ctx)
        state = "ended" if progress.ended else "running"
        fields: dict[str, Scalar] = {"iterations": progress.iterations, "state": state, "at": self._now()}
        operation = Patch(TURNS, place.turn, fields)
        unit = current.get()
        if unit is not None and unit.open and unit.scope == place.scope:
            unit.also(operation)
            return
        try:
            await place.scope.commit(*place.guards, operation)
        except CommitRefused as refusal:
            place.check(refusal)
            raise

    def leave(self, ctx: TurnLike) -> None:
        self._runs.pop(id(ctx), None)
