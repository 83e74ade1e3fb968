"""Faults of records, scopes and units of work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from keelbolt.errors import TurnStorageNotFound
from keelbolt.turns.events import Kind
from keelbolt.turns.primitives import Message, Retrievable, Tokenizable, ToolCall
from tests.conformance.broken.turn_callbacks.fault import caught_by
from tests.conformance.broken.turn_callbacks.kept import PLACES, Data, Gates, Kept, Place


def changed(value: Any, **fields: Any) -> Any:
    return type(value)(**{**{name: getattr(value, name) for name in value.__slots__}, **fields})


@caught_by("all_callbacks_exist")
class HidesItsParameters(Kept):
    def callbacks(self) -> dict[str, Any]:
        store = self.store
        return {**super().callbacks(), "store_message_callback": lambda *args: store(args[0], "message", args[1])}


@caught_by("a_new_adapter_is_empty")
class ComesWithAnExample(Kept):
    async def fetch(self, ctx: Any, kind: Kind) -> list[Any]:
        return await super().fetch(ctx, kind) or (["be an example"] if kind == "standing_instruction" else [])


@caught_by("stored_values_are_fetched")
class LosesAField(Kept):
    async def store(self, ctx: Any, kind: Kind, value: Any) -> None:
        await super().store(ctx, kind, changed(value, score=None) if isinstance(value, Retrievable) else value)


@caught_by("media_keeps_its_labels")
class TrustsEverything(Kept):
    async def store(self, ctx: Any, kind: Kind, value: Any) -> None:
        if isinstance(value, Message):
            value = changed(value, attachments=[changed(each, trust_tier="first-party") for each in value.attachments])
        if isinstance(value, ToolCall) and isinstance(value.results, tuple):
            value = changed(value, results=[changed(each, stash=None) for each in value.results])
        await super().store(ctx, kind, value)


@caught_by("values_are_fetched_in_the_order_of_storing")
class OrdersByTime(Kept):
    async def fetch(self, ctx: Any, kind: Kind) -> list[Any]:
        found = await super().fetch(ctx, kind)
        return sorted(found, key=lambda value: value.created_at) if kind != "standing_instruction" else found


@caught_by("a_mutated_value_is_replaced", "changes_and_deletions_survive")
class LosesMutates(Kept):
    async def mutate(self, ctx: Any, kind: Kind, value: Any) -> None:
        return None


@caught_by("a_mutate_keeps_the_position")
class MovesWhatIsMutated(Kept):
    async def mutate(self, ctx: Any, kind: Kind, value: Any) -> None:
        await self.delete(ctx, kind, self.key(kind, value))
        await self.store(ctx, kind, value)


@caught_by("a_pending_call_is_completed")
class KeepsPendingCalls(Kept):
    async def mutate(self, ctx: Any, kind: Kind, value: Any) -> None:
        at = self.at(ctx, kind, self.key(kind, value))
        old = self.rows(ctx, kind)[at].value if at is not None else None
        if not isinstance(old, ToolCall) or old.is_complete:
            await super().mutate(ctx, kind, value)


@caught_by("deleted_values_are_not_fetched")
class HidesInsteadOfDeleting(Kept):
    """Hides a deleted value only from the turn that deleted it."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.hidden: set[tuple[str, Place, str]] = set()

    async def delete(self, ctx: Any, kind: Kind, key: str | Tokenizable) -> None:
        self.hidden.add((ctx.id, self.place(ctx, kind), str(key)))

    async def fetch(self, ctx: Any, kind: Kind) -> list[Any]:
        place = self.place(ctx, kind)
        rows = [row for row in self.rows(ctx, kind) if (ctx.id, place, row.key) not in self.hidden]
        return [await self.read(row) for row in rows]


@caught_by("deleting_nothing_is_no_error")
class MissesWhatIsNotThere(Kept):
    async def delete(self, ctx: Any, kind: Kind, key: str | Tokenizable) -> None:
        if self.at(ctx, kind, str(key)) is None:
            raise TurnStorageNotFound
        await super().delete(ctx, kind, key)


@caught_by("calls_of_two_turns_are_not_mixed_up")
class KnowsCallsByTheirIdAlone(Kept):
    async def store(self, ctx: Any, kind: Kind, value: Any) -> None:
        if kind == "tool_call" and self.at(ctx, kind, value.id) is not None:
            await self.mutate(ctx, kind, value)
        else:
            await super().store(ctx, kind, value)


@caught_by("concurrent_stores_are_all_stored")
class ReadsThenWrites(Kept):
    async def store(self, ctx: Any, kind: Kind, value: Any) -> None:
        rows = list(self.rows(ctx, kind))
        await asyncio.sleep(0)
        self.data.rows[self.place(ctx, kind)] = [*rows, self.row(ctx, kind, value)]


@caught_by("a_fetched_value_can_be_stored_again")
class EmptiesWhatIsStoredAgain(Kept):
    async def mutate(self, ctx: Any, kind: Kind, value: Any) -> None:
        if isinstance(value, Message):
            value = changed(value, attachments=())
        await super().mutate(ctx, kind, value)


# -------------------------------------------------------------------------------------------------------- instructions


@caught_by("instructions_are_fetched_in_order")
class SortsInstructions(Kept):
    async def fetch(self, ctx: Any, kind: Kind) -> list[Any]:
        found = await super().fetch(ctx, kind)
        return sorted(found, key=str) if kind == "standing_instruction" else found


@caught_by("instructions_are_deleted_by_their_text")
class KnowsInstructionsByIdentity(Kept):
    async def delete(self, ctx: Any, kind: Kind, key: str | Tokenizable) -> None:
        if kind != "standing_instruction":
            await super().delete(ctx, kind, key)
        rows = self.rows(ctx, kind)
        rows[:] = [row for row in rows if row.value is not key]


# --------------------------------------------------------------------------------------------------------------- scope


@caught_by("tenants_are_separate")
class HasOneTenant(Kept):
    def place(self, ctx: Any, kind: Kind) -> Place:
        return ("", *super().place(ctx, kind)[1:])


@caught_by("instructions_of_tenants_are_separate")
class SharesInstructions(Kept):
    def place(self, ctx: Any, kind: Kind) -> Place:
        return (kind,) if kind == "standing_instruction" else super().place(ctx, kind)


@caught_by("threads_have_their_own_history")
class HasOneThread(Kept):
    def place(self, ctx: Any, kind: Kind) -> Place:
        tenant, _, _ = super().place(ctx, kind)
        return (tenant, "", kind)


# ----------------------------------------------------------------------------------------------------- units of work


@caught_by("a_failed_unit_of_work_stores_nothing")
class FlushesOneByOne(Kept):
    @asynccontextmanager
    async def unit_of_work(self, _ctx: Any) -> AsyncIterator[None]:
        yield


@caught_by("a_unit_of_work_is_stored")
class NeverCommits(Kept):
    @asynccontextmanager
    async def unit_of_work(self, _ctx: Any) -> AsyncIterator[None]:
        before = {place: list(rows) for place, rows in self.data.rows.items()}
        yield
        self.data.rows = before


@caught_by("concurrent_units_of_work_are_all_stored")
class RefusesUnitsThatOverlap(Kept):
    @asynccontextmanager
    async def unit_of_work(self, ctx: Any) -> AsyncIterator[None]:
        before = {place: list(rows) for place, rows in self.data.rows.items()}
        yield
        own = {place: [row for row in rows if row.turn == ctx.id] for place, rows in self.data.rows.items()}
        self.data.rows = {place: [*before.get(place, []), *rows] for place, rows in own.items()}


@caught_by("a_repeated_store_is_stored_once")
class AppendsEveryStore(Kept):
    async def store(self, ctx: Any, kind: Kind, value: Any) -> None:
        self.rows(ctx, kind).append(self.row(ctx, kind, value))


@caught_by("a_repeated_unit_of_work_is_stored_once")
class AppendsWhatUnitsRepeat(Kept):
    units = 0

    @asynccontextmanager
    async def unit_of_work(self, ctx: Any) -> AsyncIterator[None]:
        self.units += 1
        async with super().unit_of_work(ctx):
            yield

    async def store(self, ctx: Any, kind: Kind, value: Any) -> None:
        if self.units > 1:
            self.rows(ctx, kind).append(self.row(ctx, kind, value))
        else:
            await super().store(ctx, kind, value)


@caught_by("a_repeat_after_a_crash_is_stored_once")
class KnowsRepeatsOfItsProcess(Kept):
    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.stored: set[tuple[str, str, str]] = set()

    async def store(self, ctx: Any, kind: Kind, value: Any) -> None:
        known = (ctx.id, kind, self.key(kind, value))
        if known not in self.stored:
            self.stored.add(known)
            self.rows(ctx, kind).append(self.row(ctx, kind, value))


@caught_by("one_of_concurrent_settlements_counts")
class ReadsThenSettles(Kept):
    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.gates = Racing(self.data)


class Racing(Gates):
    async def settle(self, ctx: Any, gate: Any, settlement: Any) -> Any:
        if found := self.data.gates.get((gate.turn_id, gate.id)):
            return found
        await asyncio.sleep(0)
        self.data.gates[gate.turn_id, gate.id] = settlement
        return settlement


@caught_by("the_first_settlement_counts")
class SettlesAnew(Kept):
    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.gates = LastCounts(self.data)


class LastCounts(Gates):
    async def settle(self, _ctx: Any, gate: Any, settlement: Any) -> Any:
        self.data.gates[gate.turn_id, gate.id] = settlement
        return settlement


@caught_by("a_settlement_belongs_to_one_gate")
class ApprovesWhatComesLater(Kept):
    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.gates = AnyGate(self.data)


class AnyGate(Gates):
    async def open(self, _ctx: Any, gate: Any) -> Any:
        return next((found for found in self.data.gates.values() if found), None) or await super().open(_ctx, gate)


@caught_by("a_group_is_replaced")
class OnlyRemovesGroups(Kept):
    async def replace_group(self, ctx: Any, ids: list[str], replacements: list[Any]) -> None:
        await super().replace_group(ctx, ids, [])


@caught_by("values_survive")
class ForgetsAtTheEnd(Kept):
    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.data = PLACES[place] = Data()
