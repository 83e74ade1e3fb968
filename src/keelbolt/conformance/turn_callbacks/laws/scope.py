"""Whose things they are."""

from __future__ import annotations

from keelbolt.conformance.expect import equal
from keelbolt.conformance.turn_callbacks.samples import MAKE, content, ids, write
from keelbolt.conformance.turn_callbacks.subject import TurnCallbacksCase, law
from keelbolt.turns.primitives import SpooledArtifact


@law("scoped")
async def tenants_see_only_their_own(case: TurnCallbacksCase) -> None:
    """What one tenant stores is not fetched, changed or deleted by another, though thread and ids are the same."""
    for kind, make in MAKE.items():
        ours, theirs = case.turn(tenant="ours"), case.turn(tenant="theirs")
        await write(ours, "store", kind, make("x", "ours"))
        equal(await ids(theirs, kind), [], f"each {kind} that another tenant sees")
        await write(theirs, "store", kind, make("x", "theirs"))
        await write(theirs, "delete", kind, "x")
        equal(await ids(ours, kind), ["x"], f"each {kind} after another tenant deleted that id")


@law("scoped")
async def instructions_of_tenants_are_their_own(case: TurnCallbacksCase) -> None:
    """Standing instructions of one tenant are neither seen nor deleted by another."""
    ours, theirs = case.turn(tenant="ours"), case.turn(tenant="theirs")
    await ours.store_standing_instruction("be kind")
    equal(await ids(theirs, "standing_instruction"), [], "the instructions that another tenant sees")
    await theirs.delete_standing_instruction("be kind")
    equal(await ids(ours, "standing_instruction"), ["be kind"], "the instructions")


@law("scoped")
async def threads_have_their_own_history(case: TurnCallbacksCase) -> None:
    """Messages, thoughts, tool calls and retrievables of one thread are not fetched by another of the tenant."""
    for kind, make in MAKE.items():
        if kind != "memory":  # memories may be shared by the threads of a tenant, or not
            await write(case.turn("one"), "store", kind, make("x", "text"))
            equal(await ids(case.turn("two"), kind), [], f"each {kind} that another thread sees")
            equal(await ids(case.turn("one"), kind), ["x"], f"each {kind} of the thread itself")


@law("scoped")
async def bytes_of_tenants_are_their_own(case: TurnCallbacksCase) -> None:
    """The same id of bytes written by two tenants is two things."""
    ours, theirs = case.turn(tenant="ours"), case.turn(tenant="theirs")
    reader = await ours.store_retrievable_bytes("x", "ours")
    await theirs.store_retrievable_bytes("x", "theirs")
    equal(await content(reader), b"ours", "the bytes")
    await ours.store_retrievable(MAKE["retrievable"]("r", SpooledArtifact(reader)))
    [found] = await case.turn(tenant="ours").fetch_retrievables()
    equal(await found.content_string(), "ours", "the bytes of the stored retrievable")
