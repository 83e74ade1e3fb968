"""Several processes with a store at one place."""

from __future__ import annotations

from keelbolt.conformance.child import start, together
from keelbolt.conformance.expect import equal
from keelbolt.conformance.state_store import child
from keelbolt.conformance.state_store.samples import ids, steps
from keelbolt.conformance.state_store.subject import StateStorePlace, place_law

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
