"""Whose things they are."""

from __future__ import annotations

from keelbolt.conformance.expect import equal
from keelbolt.conformance.turn_callbacks.samples import MAKE, content, ids, write
from keelbolt.conformance.turn_callbacks.subject import TurnCallbacksCase, law
from keelbolt.turns.primitives import SpooledArtifact


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
