"""Events of planners."""

from __future__ import annotations

from keelbolt.conformance.expect import equal
from keelbolt.conformance.state_store.samples import ids, seen
from keelbolt.conformance.state_store.subject import StateStoreCase, law


@law("planner_events")
async def planner_events_come_back(case: StateStoreCase) -> None:
    """Events have all their fields; a trace nobody knows has none."""
    event = case.planner_event(1, text="hello", deep={"list": [1, None]})
    await case.store.save_planner_event("trace", event)
    found = await case.store.list_planner_events("trace")
    equal([seen(each) for each in found], [seen(event)], "the events")
    equal(list(await case.store.list_planner_events("unknown")), [], "the events of an unknown trace")


@law("planner_events")
async def planner_events_come_as_they_were_saved(case: StateStoreCase) -> None:
    """The order is that of saving, not of ts, which may be the time since a machine was started."""
    for number, ts in enumerate((5.0, 1.0, 3.0, 1.0)):
        await case.store.save_planner_event("trace", case.planner_event(number, ts=ts))
    await case.store.save_planner_event("other", case.planner_event(9))
    equal(ids(await case.store.list_planner_events("trace"), "trajectory_step"), [0, 1, 2, 3], "the events")


@law("planner_events")
async def a_planner_event_saved_again_is_the_same(case: StateStoreCase) -> None:
    """A repeated save of an event is not there twice; an event that differs in anything is another."""
    for text in ("a", "b", "a"):
        await case.store.save_planner_event("trace", case.planner_event(1, text=text))
    found = await case.store.list_planner_events("trace")
    equal([event.extra["text"] for event in found], ["a", "b"], "the events")
