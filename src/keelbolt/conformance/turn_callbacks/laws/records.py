"""Records, standing instructions and gates are stored, changed and deleted, each in its scope."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from keelbolt.conformance.expect import equal
from keelbolt.conformance.turn_callbacks.subject import (
    AT,
    LATER,
    MAKE,
    TurnCallbacksCase,
    content,
    fetch,
    full_message,
    ids,
    law,
    message,
    picture,
    same,
    tool_call,
    write,
)
from keelbolt.turns.gates import Settlement, TurnGate
from keelbolt.turns.primitives import SpooledArtifact, Tokenizable


@law()
async def stored_values_are_fetched(case: TurnCallbacksCase) -> None:
    """A stored value is fetched with all its fields, also by a later turn of the thread."""
    for kind, make in MAKE.items():
        await write(case.turn(), "store", kind, make("x", "some text"))
        await same(await fetch(case.turn(), kind), [make("x", "some text")], f"the {kind}")


@law()
async def media_keeps_its_labels(case: TurnCallbacksCase) -> None:
    """Attachments and media results keep their bytes, trust tier, hazard and stash."""
    await case.turn().store_message(full_message("m"))
    await same(await fetch(case.turn(), "message"), [full_message("m")], "the message")
    call = tool_call("c", "x")
    fields = {name: getattr(call, name) for name in call.__slots__}
    await case.turn().store_tool_call(type(call)(**{**fields, "results": [picture(), picture()]}))
    [found] = await fetch(case.turn(), "tool_call")
    equal([media.to_json() for media in found.results], [picture().to_json()] * 2, "the media of the tool call")


@law()
async def values_are_fetched_in_the_order_of_storing(case: TurnCallbacksCase) -> None:
    """Values are fetched in the order of storing, not by their timestamps."""
    for kind, make in MAKE.items():
        turn = case.turn()
        for number, at in enumerate((LATER, AT, AT + timedelta(days=1))):
            await write(turn, "store", kind, make(f"x{number}", "text", at=at))
        equal(await ids(turn, kind), ["x0", "x1", "x2"], f"the order of each {kind}")


@law()
async def a_mutated_value_is_replaced(case: TurnCallbacksCase) -> None:
    """After a mutate, the fetch returns the new value completely and once."""
    for kind, make in MAKE.items():
        turn = case.turn()
        await write(turn, "store", kind, make("x", "before"))
        await write(turn, "mutate", kind, make("x", "after", at=LATER))
        await same(await fetch(turn, kind), [make("x", "after", at=LATER)], f"the mutated {kind}")


@law()
async def a_mutate_keeps_the_position(case: TurnCallbacksCase) -> None:
    """A mutated value keeps its position, and other values are unchanged."""
    for kind, make in MAKE.items():
        turn = case.turn()
        for key in ("a", "b", "c"):
            await write(turn, "store", kind, make(key, "before"))
        await write(turn, "mutate", kind, make("b", "after", at=LATER))
        wanted = [make("a", "before"), make("b", "after", at=LATER), make("c", "before")]
        await same(await fetch(turn, kind), wanted, f"each {kind}")


@law()
async def a_pending_call_is_completed(case: TurnCallbacksCase) -> None:
    """A tool call stored as pending can be mutated to a complete one."""
    turn = case.turn()
    await turn.store_tool_call(tool_call("c"))
    await same(await fetch(turn, "tool_call"), [tool_call("c")], "the pending call")
    await turn.mutate_tool_call(tool_call("c", "42"))
    await same(await fetch(turn, "tool_call"), [tool_call("c", "42")], "the complete call")


@law()
async def deleted_values_are_not_fetched(case: TurnCallbacksCase) -> None:
    """No turn fetches a deleted value; the other values are still fetched."""
    for kind, make in MAKE.items():
        turn = case.turn()
        for key in ("a", "b", "c"):
            await write(turn, "store", kind, make(key, "text"))
        await write(turn, "delete", kind, "b")
        equal(await ids(turn, kind), ["a", "c"], f"each {kind} that is left")
        equal(await ids(case.turn(), kind), ["a", "c"], f"each {kind} that a later turn sees")


@law()
async def deleting_nothing_is_no_error(case: TurnCallbacksCase) -> None:
    """Deleting an id that is not stored, or is deleted already, changes nothing and raises no error."""
    for kind, make in MAKE.items():
        turn = case.turn()
        await write(turn, "store", kind, make("a", "text"))
        await write(turn, "store", kind, make("b", "text"))
        for key in ("unknown", "b", "b"):
            await write(turn, "delete", kind, key)
        equal(await ids(turn, kind), ["a"], f"each {kind} that is left")


@law()
async def calls_of_two_turns_are_not_mixed_up(case: TurnCallbacksCase) -> None:
    """A tool call id that a second turn uses again is a second call with its own result."""
    first, second = case.turn(), case.turn()
    await first.store_tool_call(tool_call("call_0", "of the first"))
    await second.store_tool_call(tool_call("call_0"))
    await second.mutate_tool_call(tool_call("call_0", "of the second"))
    wanted = [tool_call("call_0", "of the first"), tool_call("call_0", "of the second")]
    await same(await fetch(case.turn(), "tool_call"), wanted, "the two calls")


@law()
async def concurrent_stores_are_all_stored(case: TurnCallbacksCase) -> None:
    """Of many concurrent stores, none is lost and none is doubled."""
    turn = case.turn()
    await asyncio.gather(*(turn.store_message(message(f"m{number}")) for number in range(20)))
    equal(sorted(await ids(turn, "message")), sorted(f"m{number}" for number in range(20)), "the messages")


@law()
async def a_fetched_value_can_be_stored_again(case: TurnCallbacksCase) -> None:
    """A fetched value can be passed to mutate and is unchanged afterwards."""
    turn = case.turn()
    await turn.store_message(full_message("m"))
    [found] = await fetch(turn, "message")
    await case.turn().mutate_message(found)
    await same(await fetch(case.turn(), "message"), [full_message("m")], "the message")


@law()
async def a_repeated_store_is_stored_once(case: TurnCallbacksCase) -> None:
    """A value that its turn stores again, with another time, is no error and is fetched once, at its position."""
    for kind, make in MAKE.items():
        turn = case.turn()
        await write(turn, "store", kind, make("x", "text"))
        await write(turn, "store", kind, make("y", "text"))
        await write(turn, "store", kind, make("x", "text", at=LATER))
        equal(await ids(turn, kind), ["x", "y"], f"each {kind}")


# --------------------------------------------------------------------------------------------------------- instructions


@law()
async def instructions_are_fetched_in_order(case: TurnCallbacksCase) -> None:
    """Instructions stored as str or Tokenizable are refreshed in the order of storing."""
    turn = case.turn()
    for value in ("c", Tokenizable("a"), "b"):
        await turn.store_standing_instruction(value)
    equal(await ids(case.turn(), "standing_instruction"), ["c", "a", "b"], "the instructions")


@law()
async def instructions_are_deleted_by_their_text(case: TurnCallbacksCase) -> None:
    """An instruction is deleted by its text, as str or Tokenizable, whichever of them was stored."""
    turn = case.turn()
    for value in ("a", Tokenizable("b"), "c"):
        await turn.store_standing_instruction(value)
    await turn.delete_standing_instruction(Tokenizable("a"))
    await turn.delete_standing_instruction("b")
    await turn.delete_standing_instruction("unknown")
    equal(await ids(case.turn(), "standing_instruction"), ["c"], "the instructions that are left")


# ---------------------------------------------------------------------------------------------------------------- gates


@law("gates")
async def the_first_settlement_counts(case: TurnCallbacksCase) -> None:
    """Of two settlements of a gate the first one counts, also for a turn that opens the gate again."""
    turn = case.turn()

    def gate() -> TurnGate:
        return TurnGate(turn_id=turn.id, id="pay", reason="May I pay?")

    equal(await case.gates.open(turn, gate()), None, "the settlement of a new gate")
    first = await case.gates.settle(turn, gate(), Settlement("resolved", True))
    second = await case.gates.settle(turn, gate(), Settlement("resolved", False))
    again = await case.gates.open(turn, gate())
    equal([each.value for each in (first, second, again)], [True, True, True], "the values")


@law("gates")
async def one_of_concurrent_settlements_counts(case: TurnCallbacksCase) -> None:
    """Of concurrent settlements one counts: each settler gets its value, and so does a turn that opens the gate."""
    turn = case.turn()
    gate = TurnGate(turn_id=turn.id, id="pay", reason="May I pay?")
    await case.gates.open(turn, gate)
    found = await asyncio.gather(
        *(case.gates.settle(turn, gate, Settlement("resolved", number)) for number in range(5))
    )
    stored = await case.gates.open(turn, gate)
    equal([each.value for each in found], [stored.value] * 5, "the values that the settlers get")


@law("gates")
async def a_settlement_belongs_to_one_gate(case: TurnCallbacksCase) -> None:
    """A settlement applies to no other gate of its turn and to no gate of another turn."""
    turn = case.turn()
    await case.gates.open(turn, TurnGate(turn_id=turn.id, id="one", reason="May I look?"))
    await case.gates.settle(
        turn, TurnGate(turn_id=turn.id, id="one", reason="May I look?"), Settlement("resolved", True)
    )
    other = TurnGate(turn_id=turn.id, id="two", reason="May I pay 1000?")
    equal(await case.gates.open(turn, other), None, "the settlement of another gate of the turn")
    later = case.turn()
    gate = TurnGate(turn_id=later.id, id="one", reason="May I look?")
    equal(await case.gates.open(later, gate), None, "the settlement of the same question in another turn")


# ---------------------------------------------------------------------------------------------------------------- scope


@law("scoped")
async def tenants_are_separate(case: TurnCallbacksCase) -> None:
    """A tenant does not fetch, change or delete values of another, also with the same thread and ids."""
    for kind, make in MAKE.items():
        ours, theirs = case.turn(tenant="ours"), case.turn(tenant="theirs")
        await write(ours, "store", kind, make("x", "ours"))
        equal(await ids(theirs, kind), [], f"each {kind} that another tenant sees")
        await write(theirs, "store", kind, make("x", "theirs"))
        await write(theirs, "delete", kind, "x")
        equal(await ids(ours, kind), ["x"], f"each {kind} after another tenant deleted that id")


@law("scoped")
async def instructions_of_tenants_are_separate(case: TurnCallbacksCase) -> None:
    """A tenant neither fetches nor deletes standing instructions of another."""
    ours, theirs = case.turn(tenant="ours"), case.turn(tenant="theirs")
    await ours.store_standing_instruction("be kind")
    equal(await ids(theirs, "standing_instruction"), [], "the instructions that another tenant sees")
    await theirs.delete_standing_instruction("be kind")
    equal(await ids(ours, "standing_instruction"), ["be kind"], "the instructions")


@law("scoped")
async def threads_have_their_own_history(case: TurnCallbacksCase) -> None:
    """A thread does not fetch messages, thoughts, tool calls and retrievables of another thread."""
    for kind, make in MAKE.items():
        if kind != "memory":  # memories may be shared by the threads of a tenant, or not
            await write(case.turn("one"), "store", kind, make("x", "text"))
            equal(await ids(case.turn("two"), kind), [], f"each {kind} that another thread sees")
            equal(await ids(case.turn("one"), kind), ["x"], f"each {kind} of the thread itself")


@law("scoped")
async def bytes_of_tenants_are_separate(case: TurnCallbacksCase) -> None:
    """Two tenants that write bytes under the same id have separate bytes."""
    ours, theirs = case.turn(tenant="ours"), case.turn(tenant="theirs")
    reader = await ours.store_retrievable_bytes("x", "ours")
    await theirs.store_retrievable_bytes("x", "theirs")
    equal(await content(reader), b"ours", "the bytes")
    await ours.store_retrievable(MAKE["retrievable"]("r", SpooledArtifact(reader)))
    [found] = await case.turn(tenant="ours").fetch_retrievables()
    equal(await found.content_string(), "ours", "the bytes of the stored retrievable")
