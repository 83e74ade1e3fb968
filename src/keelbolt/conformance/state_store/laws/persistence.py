"""Laws of a store that is reopened, or opened by several processes, at the same place."""

from __future__ import annotations

from keelbolt.conformance.child import start, together
from keelbolt.conformance.expect import equal
from keelbolt.conformance.state_store import child
from keelbolt.conformance.state_store.subject import StateStorePlace, ids, place_law, steps


@place_law("persistent")
async def an_awaited_save_is_committed(place: StateStorePlace) -> None:
    """A second store at the same place finds every awaited save of the first, which is neither flushed nor closed."""
    async with place.open() as case, place.open() as other:
        await case.store.save_event(case.event(1.0))
        equal(ids(await other.store.load_history("trace"), "ts"), [1.0], "the history")
        if case.can("tasks"):
            await case.store.save_update(case.update(0))
            equal(steps(await other.store.list_updates("session")), [0], "the updates")
        if case.can("trajectories"):
            await case.store.save_trajectory("trace", "session", case.trajectory())
            equal(list(await other.store.list_traces("session")), ["trace"], "the traces")
        if case.can("planner_events"):
            await case.store.save_planner_event("trace", case.planner_event(1))
            equal(len(await other.store.list_planner_events("trace")), 1, "the number of planner events")


@place_law("persistent")
async def events_survive(place: StateStorePlace) -> None:
    """Events exist after a reopen, and a repeated save still stores them once."""
    async with place.open() as case:
        for ts in (1.0, 2.0):
            await case.store.save_event(case.event(ts))
    async with place.open() as case:
        await case.store.save_event(case.event(2.0))
        equal(ids(await case.store.load_history("trace"), "ts"), [1.0, 2.0], "the history")


@place_law("persistent")
async def pauses_and_memory_survive(place: StateStorePlace) -> None:
    """A pause and a memory can be loaded after a reopen."""
    async with place.open() as case:
        if case.can("planner_state"):
            await case.store.save_planner_state("token", {"a": 1})
        if case.can("memory_state"):
            await case.store.save_memory_state("key", {"b": 2})
    async with place.open() as case:
        if case.can("planner_state"):
            equal(await case.store.load_planner_state("token"), {"a": 1}, "the pause")
            equal(await case.store.load_planner_state("token"), None, "the pause, after it was taken")
        if case.can("memory_state"):
            equal(await case.store.load_memory_state("key"), {"b": 2}, "the memory")


@place_law("persistent")
async def sessions_survive(place: StateStorePlace) -> None:
    """Tasks, updates, steering, trajectories and planner events exist after a reopen."""
    async with place.open() as case:
        if case.can("tasks"):
            await case.store.save_task(case.task())
            for number in range(3):
                await case.store.save_update(case.update(number))
        if case.can("steering"):
            await case.store.save_steering(case.steering(1))
        if case.can("trajectories"):
            await case.store.save_trajectory("trace", "session", case.trajectory())
        if case.can("planner_events"):
            await case.store.save_planner_event("trace", case.planner_event(1))
    async with place.open() as case:
        if case.can("tasks"):
            equal(ids(await case.store.list_tasks("session"), "task_id"), ["task"], "the tasks")
            equal(steps(await case.store.list_updates("session", since_id="update-0")), [1, 2], "the updates")
        if case.can("steering"):
            equal(ids(await case.store.list_steering("session"), "event_id"), ["event-1"], "the steering events")
        if case.can("trajectories"):
            equal(list(await case.store.list_traces("session")), ["trace"], "the traces")
        if case.can("planner_events"):
            found = await case.store.list_planner_events("trace")
            equal(ids(found, "trajectory_step"), [1], "the planner events")


# ------------------------------------------------------------------------------------------------------------ processes


SAVED = ADDED = 20


@place_law("processes")
async def awaited_saves_of_a_killed_process_are_stored(place: StateStorePlace) -> None:
    """Every save that a process awaited before kill -9 is stored, of every capability."""
    async with start(place, child.save_some, count=SAVED) as process:
        await process.ready()
        process.go()
        await process.answer()
        await process.kill()
    wanted = list(range(SAVED))
    async with place.open() as case:
        equal(ids(await case.store.load_history("trace"), "ts"), [float(number) for number in wanted], "the history")
        if case.can("tasks"):
            equal(steps(await case.store.list_updates("session")), wanted, "the updates")
        if case.can("trajectories"):
            traces = await case.store.list_traces("session")
            equal(sorted(traces), sorted(f"trace-{number}" for number in wanted), "the traces")
        if case.can("planner_events"):
            equal(len(await case.store.list_planner_events("trace")), SAVED, "the number of planner events")
        if case.can("memory_state"):
            states = [await case.store.load_memory_state(f"key-{number}") for number in wanted]
            equal(states, [{"number": number} for number in wanted], "the states")


@place_law("processes")
async def two_processes_that_write_a_memory_lose_nothing(place: StateStorePlace) -> None:
    """Two processes that add to one state by load_memory_version and if_version, and retry, lose no item."""
    names = ("one", "two")
    async with place.open() as case:
        if not case.can("memory_versions"):
            return
        async with together(place, child.add, *({"name": name, "count": ADDED} for name in names)) as processes:
            for process in processes:
                await process.answer()
        found = await case.store.load_memory_state("key")
        wanted = sorted(f"{name}-{number}" for name in names for number in range(ADDED))
        equal(sorted(found["items"]), wanted, "the added values")
