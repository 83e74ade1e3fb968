"""Several writes are one, and stored data exists after the adapter is reopened."""

from __future__ import annotations

import asyncio
import contextlib

from keelbolt.conformance.expect import equal
from keelbolt.conformance.turn_callbacks.subject import (
    AT,
    LATER,
    MAKE,
    TurnCallbacksCase,
    TurnCallbacksPlace,
    fetch,
    full_message,
    ids,
    law,
    memory,
    message,
    place_law,
    retrievable,
    same,
    thought,
    tool_call,
    write,
)
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


# ------------------------------------------------------------------------------------------------------------- together


class _LeftEarly(Exception):
    """Ends a unit of work by an error."""


@law("unit_of_work")
async def a_failed_unit_of_work_stores_nothing(case: TurnCallbacksCase) -> None:
    """If a unit of work ends with an error, none of its stores, mutates and deletes takes effect."""
    turn = case.turn()
    await turn.store_message(message("kept", "before"))
    await turn.store_message(message("also kept"))
    with contextlib.suppress(_LeftEarly):
        async with case.unit_of_work(turn):
            await turn.store_message(message("new"))
            await turn.store_thought(thought("new"))
            await turn.mutate_message(message("kept", "after"))
            await turn.delete_message("also kept")
            raise _LeftEarly
    await same(await fetch(turn, "message"), [message("kept", "before"), message("also kept")], "the messages")
    equal(await ids(turn, "thought"), [], "the thoughts")


@law("unit_of_work")
async def a_unit_of_work_is_stored(case: TurnCallbacksCase) -> None:
    """At the end of a unit of work all its writes are stored, in their order."""
    turn = case.turn()
    await turn.store_message(message("gone"))
    async with case.unit_of_work(turn):
        await turn.store_message(message("a"))
        await turn.store_memory(memory("f"))
        await turn.store_message(message("b", "before"))
        await turn.mutate_message(message("b", "after"))
        await turn.delete_message("gone")
        await turn.store_message(message("c"))
        await turn.delete_message("c")
    await same(await fetch(turn, "message"), [message("a"), message("b", "after")], "the messages")
    equal(await ids(turn, "memory"), ["f"], "the memories")


@law("unit_of_work")
async def a_repeated_unit_of_work_is_stored_once(case: TurnCallbacksCase) -> None:
    """A committed unit that its turn repeats, as after a checkpoint, adds only its new values."""
    turn = case.turn()
    for number in range(2):
        at = LATER if number else AT
        async with case.unit_of_work(turn):
            await turn.store_message(message("m", at=at))
            await turn.store_tool_call(tool_call("c", at=at))
            if number:
                await turn.mutate_tool_call(tool_call("c", "done", at=at))
                await turn.store_message(message("new", at=at))
    equal(await ids(turn, "message"), ["m", "new"], "the messages")
    equal([call.is_complete for call in await fetch(turn, "tool_call")], [True], "which calls are complete")


@law("group")
async def a_group_is_replaced(case: TurnCallbacksCase) -> None:
    """Replacing a group of tool calls removes the old calls and stores the new ones; other calls stay."""
    turn = case.turn()
    for number in range(3):
        await turn.store_tool_call(tool_call(f"c{number}", "x"))
    await turn.replace_tool_call_group(["c0", "c1"], [tool_call("summary", "both")])
    equal(await ids(turn, "tool_call"), ["c2", "summary"], "the tool calls")


@law("unit_of_work")
async def concurrent_units_of_work_are_all_stored(case: TurnCallbacksCase) -> None:
    """Concurrent units of work on one thread, each storing for thread and agent, are all stored once."""
    await case.turn().store_message(message("before"))

    async def unit(number: int) -> None:
        turn = case.turn()
        async with case.unit_of_work(turn):
            await turn.store_message(message(f"m{number}"))
            await asyncio.sleep(0)
            await turn.store_memory(memory(f"f{number}"))

    await asyncio.gather(*map(unit, range(8)))
    equal(sorted(await ids(case.turn(), "message")), ["before", *(f"m{n}" for n in range(8))], "the messages")
    equal(sorted(await ids(case.turn(), "memory")), [f"f{n}" for n in range(8)], "the memories")
