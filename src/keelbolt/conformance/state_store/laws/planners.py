"""Pauses, events and trajectories of planners."""

from __future__ import annotations

import asyncio
import copy

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.state_store.subject import PAYLOAD, StateStoreCase, ids, law, seen

PAUSE = {
    "trajectory": {"version": 1, "steps": []},
    "reason": "await_input",
    "payload": PAYLOAD,
    "constraints": None,
    "tool_context": {"tenant_id": "test", "user_id": "test"},
}


@law("planner_state")
async def a_pause_is_loaded(case: StateStoreCase) -> None:
    """A pause is loaded exactly as it was saved."""
    await case.store.save_planner_state("token", copy.deepcopy(PAUSE))
    equal(await case.store.load_planner_state("token"), PAUSE, "the pause")


@law("planner_state")
async def a_pause_is_taken_once(case: StateStoreCase) -> None:
    """Loading a pause consumes it: the second load returns None."""
    await case.store.save_planner_state("token", {"data": "value"})
    equal(await case.store.load_planner_state("token"), {"data": "value"}, "the first load")
    equal(await case.store.load_planner_state("token"), None, "the second load")


@law("planner_state")
async def one_of_many_takes_a_pause(case: StateStoreCase) -> None:
    """Of several concurrent loads of one pause, exactly one gets it."""
    await case.store.save_planner_state("token", {"data": "value"})
    found = await asyncio.gather(*(case.store.load_planner_state("token") for _ in range(10)))
    equal([pause for pause in found if pause is not None], [{"data": "value"}], "the loaded pauses")


@law("planner_state")
async def an_unknown_token_is_none(case: StateStoreCase) -> None:
    """load_planner_state returns None for an unknown token, and an empty pause for a saved empty pause."""
    equal(await case.store.load_planner_state("unknown"), None, "an unknown token")
    await case.store.save_planner_state("token", {})
    equal(await case.store.load_planner_state("token"), {}, "an empty pause")


@law("planner_state")
async def a_pause_saved_again_is_replaced(case: StateStoreCase) -> None:
    """A pause that is saved again under its token replaces the one before."""
    for number in (1, 2):
        await case.store.save_planner_state("token", {"number": number})
    await case.store.save_planner_state("other", {"number": 3})
    equal(await case.store.load_planner_state("token"), {"number": 2}, "the pause")
    equal(await case.store.load_planner_state("token"), None, "the pause, after it was taken")
    equal(await case.store.load_planner_state("other"), {"number": 3}, "another token's pause")


@law("planner_state")
async def a_saved_pause_is_a_copy(case: StateStoreCase) -> None:
    """Changes that a caller makes to a pause after saving it, at any depth, are not stored."""
    pause = {"deep": {"list": [1]}}
    await case.store.save_planner_state("token", pause)
    pause["deep"]["list"].append(2)
    equal(await case.store.load_planner_state("token"), {"deep": {"list": [1]}}, "the pause")


@law("waiting_pauses")
async def waiting_pauses_are_listed_and_stay(case: StateStoreCase) -> None:
    """list_pauses returns the newest first, get_pause returns one, and neither consumes a pause."""
    for number in range(3):
        await case.store.save_planner_state(f"token-{number}", {"number": number})
    await case.store.load_planner_state("token-1")
    equal(ids(await case.store.list_pauses(), "token"), ["token-2", "token-0"], "the waiting pauses")
    equal(ids(await case.store.list_pauses(limit=1), "token"), ["token-2"], "the newest pause")
    shown = await case.store.get_pause("token-0")
    equal((shown.token, shown.payload), ("token-0", {"number": 0}), "the pause that is shown")
    equal(await case.store.get_pause("token-1"), None, "a pause that was taken")
    equal(await case.store.load_planner_state("token-0"), {"number": 0}, "the pause, after it was shown")


@law("waiting_pauses")
async def a_cancelled_pause_is_gone(case: StateStoreCase) -> None:
    """cancel_pause removes the pause, and returns whether there was one."""
    await case.store.save_planner_state("token", {})
    equal(await case.store.cancel_pause("token"), True, "the first cancellation")
    equal(await case.store.cancel_pause("token"), False, "the second cancellation")
    equal(await case.store.load_planner_state("token"), None, "the pause")


@law("pause_leases")
async def a_pause_taken_with_a_lease_is_taken_once(case: StateStoreCase) -> None:
    """While a lease lasts, no other caller gets the pause, with or without a lease; confirm removes the pause."""
    await case.store.save_planner_state("token", {"data": 1})
    taken = await asyncio.gather(*(case.store.take_planner_state("token", lease_seconds=60) for _ in range(5)))
    leases = [found for found in taken if found is not None]
    equal(len(leases), 1, "the number of callers that got the pause")
    (lease,) = leases
    equal(lease.payload, {"data": 1}, "the pause")
    equal(await case.store.load_planner_state("token"), None, "the pause, for another caller")
    equal(await lease.confirm(), True, "whether the lease was confirmed")
    equal(await case.store.take_planner_state("token", lease_seconds=60), None, "the pause, after it was confirmed")


@law("pause_leases")
async def a_pause_is_available_when_its_lease_ends(case: StateStoreCase) -> None:
    """After a release or an expired lease the pause is available; an expired lease can't be confirmed."""
    await case.store.save_planner_state("token", {"data": 1})
    released = await case.store.take_planner_state("token", lease_seconds=60)
    equal(await released.release(), True, "whether the lease was released")
    expired = await case.store.take_planner_state("token", lease_seconds=0.2)
    expect(expired is not None, "the pause is not available after the release")
    await asyncio.sleep(0.5)
    equal(await expired.confirm(), False, "whether an expired lease was confirmed")
    equal(await case.store.load_planner_state("token"), {"data": 1}, "the pause, after its lease expired")


# ------------------------------------------------------------------------------------------------------- planner events


@law("planner_events")
async def planner_events_are_loaded(case: StateStoreCase) -> None:
    """Events are loaded with all their fields; an unknown trace has none."""
    event = case.planner_event(1, text="hello", deep={"list": [1, None]})
    await case.store.save_planner_event("trace", event)
    found = await case.store.list_planner_events("trace")
    equal([seen(each) for each in found], [seen(event)], "the events")
    equal(list(await case.store.list_planner_events("unknown")), [], "the events of an unknown trace")


@law("planner_events")
async def planner_events_are_in_the_order_of_saving(case: StateStoreCase) -> None:
    """Events are in the order of saving, not of ts, which may count from the start of a machine."""
    for number, ts in enumerate((5.0, 1.0, 3.0, 1.0)):
        await case.store.save_planner_event("trace", case.planner_event(number, ts=ts))
    await case.store.save_planner_event("other", case.planner_event(9))
    equal(ids(await case.store.list_planner_events("trace"), "trajectory_step"), [0, 1, 2, 3], "the events")


@law("planner_events")
async def a_planner_event_saved_again_is_stored_once(case: StateStoreCase) -> None:
    """A repeated save of an event stores it once; an event that differs in any field is another event."""
    for text in ("a", "b", "a"):
        await case.store.save_planner_event("trace", case.planner_event(1, text=text))
    found = await case.store.list_planner_events("trace")
    equal([event.extra["text"] for event in found], ["a", "b"], "the events")


# --------------------------------------------------------------------------------------------------------- trajectories


@law("trajectories")
async def trajectories_are_loaded(case: StateStoreCase) -> None:
    """A trajectory is loaded as it was saved."""
    trajectory = case.trajectory()
    await case.store.save_trajectory("trace", "session", trajectory)
    found = await case.store.get_trajectory("trace", "session")
    equal(found.serialise(), trajectory.serialise(), "the trajectory")


@law("trajectories")
async def a_trajectory_of_another_session_is_none(case: StateStoreCase) -> None:
    """An unknown trace, or the trace of another session, is None."""
    await case.store.save_trajectory("trace", "session", case.trajectory())
    equal(await case.store.get_trajectory("trace", "other"), None, "the trajectory in another session")
    equal(await case.store.get_trajectory("unknown", "session"), None, "an unknown trajectory")


@law("trajectories")
async def traces_are_listed_newest_first(case: StateStoreCase) -> None:
    """list_traces returns at most ``limit`` traces of a session, the last saved first."""
    for trace in ("a", "b", "c"):
        await case.store.save_trajectory(trace, "session", case.trajectory())
    await case.store.save_trajectory("d", "other", case.trajectory())
    equal(list(await case.store.list_traces("session")), ["c", "b", "a"], "the traces")
    equal(list(await case.store.list_traces("session", limit=2)), ["c", "b"], "the last two traces")
    equal(list(await case.store.list_traces("unknown")), [], "the traces of an unknown session")


@law("trajectories")
async def a_trajectory_saved_again_is_the_newest(case: StateStoreCase) -> None:
    """A trajectory that is saved again replaces the one before, and its trace is listed first, once."""
    for trace, query in (("a", "1"), ("b", "2"), ("a", "3")):
        await case.store.save_trajectory(trace, "session", case.trajectory(query))
    equal(list(await case.store.list_traces("session")), ["a", "b"], "the traces")
    equal((await case.store.get_trajectory("a", "session")).query, "3", "the query of the trajectory")


@law("trajectories")
async def one_trace_in_two_sessions_is_two_trajectories(case: StateStoreCase) -> None:
    """A trace that a second session saves too still belongs to the first."""
    for session in ("a", "b"):
        await case.store.save_trajectory("trace", session, case.trajectory(session))
    for session in ("a", "b"):
        found = await case.store.get_trajectory("trace", session)
        equal(None if found is None else found.query, session, f"the trajectory of session {session}")
