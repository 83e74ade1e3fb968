"""Laws of an adapter that is reopened at the same place."""

from __future__ import annotations

from keelbolt.conformance.expect import equal
from keelbolt.conformance.turn_callbacks.samples import LATER, MAKE, fetch, full_message, ids, retrievable, same, write
from keelbolt.conformance.turn_callbacks.subject import TurnCallbacksPlace, place_law
from keelbolt.turns.primitives import SpooledArtifact


@place_law("persistent")
async def values_survive(place: TurnCallbacksPlace) -> None:
    """Values, their order and their bytes exist after a reopen."""
    async with place.open() as case:
        turn = case.turn()
        for kind, make in MAKE.items():
            for key in ("b", "a"):
                await write(turn, "store", kind, make(key, "some text"))
        await turn.store_message(full_message("full"))
        await turn.store_standing_instruction("be kind")
    async with place.open() as case:
        turn = case.turn()
        for kind, make in MAKE.items():
            wanted = [make("b", "some text"), make("a", "some text")]
            await same(await fetch(turn, kind), [*wanted, full_message("full")] if kind == "message" else wanted, kind)
        equal(await ids(turn, "standing_instruction"), ["be kind"], "the instructions")


@place_law("persistent")
async def bytes_survive(place: TurnCallbacksPlace) -> None:
    """Bytes written through a conduit are read through their owner after a reopen."""
    async with place.open() as case:
        reader = await case.turn().store_retrievable_bytes("x", "text\n" * 1000)
        await case.turn().store_retrievable(retrievable("r", SpooledArtifact(reader)))
    async with place.open() as case:
        [found] = await fetch(case.turn(), "retrievable")
        equal(await found.content_string(), "text\n" * 1000, "the text")


@place_law("persistent")
async def changes_and_deletions_survive(place: TurnCallbacksPlace) -> None:
    """Changes and deletions exist after a reopen."""
    async with place.open() as case:
        turn = case.turn()
        for kind, make in MAKE.items():
            for key in ("a", "b", "c"):
                await write(turn, "store", kind, make(key, "before"))
            await write(turn, "mutate", kind, make("a", "after"))
            await write(turn, "delete", kind, "b")
    async with place.open() as case:
        for kind, make in MAKE.items():
            await same(await fetch(case.turn(), kind), [make("a", "after"), make("c", "before")], kind)


@place_law("persistent")
async def a_repeat_after_a_crash_is_stored_once(place: TurnCallbacksPlace) -> None:
    """A value that a turn stores again after a reopen, with another time, is fetched once."""
    async with place.open() as case:
        first = case.turn(turn_id="interrupted")
        for kind, make in MAKE.items():
            for key in ("x", "y"):
                await write(first, "store", kind, make(key, "text"))
    async with place.open() as case:
        again = case.turn(turn_id="interrupted")
        for kind, make in MAKE.items():
            for key in ("x", "y", "z"):
                await write(again, "store", kind, make(key, "text", at=LATER))
            equal(await ids(again, kind), ["x", "y", "z"], f"each {kind}")
