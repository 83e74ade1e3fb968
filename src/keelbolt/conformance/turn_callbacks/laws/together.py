"""Several writes as one."""

from __future__ import annotations

import asyncio
import contextlib

from keelbolt.conformance.expect import equal
from keelbolt.conformance.turn_callbacks.samples import AT, LATER, fetch, ids, memory, message, same, thought, tool_call
from keelbolt.conformance.turn_callbacks.subject import TurnCallbacksCase, law


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
