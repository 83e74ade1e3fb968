"""Pauses of planners."""

from __future__ import annotations

import asyncio
import copy

from keelbolt.conformance.expect import equal
from keelbolt.conformance.state_store.law import Case, law
from keelbolt.conformance.state_store.things import PAYLOAD

PAUSE = {
    "trajectory": {"version": 1, "steps": []},
    "reason": "await_input",
    "payload": PAYLOAD,
    "constraints": None,
    "tool_context": {"tenant_id": "test", "user_id": "test"},
}


@law("planner_state")
async def a_pause_comes_back(case: Case) -> None:
    """A pause is loaded as it was saved, losslessly."""
    await case.store.save_planner_state("token", copy.deepcopy(PAUSE))
    equal(await case.store.load_planner_state("token"), PAUSE, "the pause")


@law("planner_state")
async def a_pause_is_taken_once(case: Case) -> None:
    """Loading a pause consumes it: the second load answers None."""
    await case.store.save_planner_state("token", {"data": "value"})
    equal(await case.store.load_planner_state("token"), {"data": "value"}, "the first load")
    equal(await case.store.load_planner_state("token"), None, "the second load")


@law("planner_state")
async def one_of_many_takes_a_pause(case: Case) -> None:
    """Of several that load one pause at once exactly one gets it."""
    await case.store.save_planner_state("token", {"data": "value"})
    found = await asyncio.gather(*(case.store.load_planner_state("token") for _ in range(10)))
    equal([pause for pause in found if pause is not None], [{"data": "value"}], "what they got")


@law("planner_state")
async def an_unknown_token_is_none(case: Case) -> None:
    """A token nobody knows is None, and no empty pause; an empty pause is one."""
    equal(await case.store.load_planner_state("unknown"), None, "an unknown token")
    await case.store.save_planner_state("token", {})
    equal(await case.store.load_planner_state("token"), {}, "an empty pause")


@law("planner_state")
async def a_pause_saved_again_is_the_last(case: Case) -> None:
    """A pause that is saved again under its token replaces the one before."""
    for number in (1, 2):
        await case.store.save_planner_state("token", {"number": number})
    await case.store.save_planner_state("other", {"number": 3})
    equal(await case.store.load_planner_state("token"), {"number": 2}, "the pause")
    equal(await case.store.load_planner_state("token"), None, "the pause, after it was taken")
    equal(await case.store.load_planner_state("other"), {"number": 3}, "another token's pause")


@law("planner_state")
async def a_saved_pause_is_a_copy(case: Case) -> None:
    """What a caller changes in a pause after saving it, at any depth, is not changed in the store."""
    pause = {"deep": {"list": [1]}}
    await case.store.save_planner_state("token", pause)
    pause["deep"]["list"].append(2)
    equal(await case.store.load_planner_state("token"), {"deep": {"list": [1]}}, "the pause")
