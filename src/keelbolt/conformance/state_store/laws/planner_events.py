"""Events of planners."""

from __future__ import annotations

from keelbolt.conformance.expect import equal
from keelbolt.conformance.state_store.samples import ids, seen
from keelbolt.conformance.state_store.subject import StateStoreCase, law


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
