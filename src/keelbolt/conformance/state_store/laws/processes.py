"""Several processes with a store at one place."""

from __future__ import annotations

from contextlib import AsyncExitStack

from keelbolt.conformance.expect import equal
from keelbolt.conformance.state_store import child
from keelbolt.conformance.state_store.law import StatePlace, process_law
from keelbolt.conformance.state_store.things import ids, steps

SAVED = ADDED = 20


@process_law
async def saves_that_a_killed_process_awaited_are_kept(place: StatePlace) -> None:
    """What a process awaited before kill -9 ended it is there: events, updates, trajectories, memory and the rest."""
    async with child.start(place, child.save_some, count=SAVED) as process:
        await process.ready()
        process.go()
        await process.answer()
        await process.kill()
    wanted = list(range(SAVED))
    async with place.case() as case:
        equal(ids(await case.store.load_history("trace"), "ts"), [float(number) for number in wanted], "the history")
        if case.can("tasks"):
            equal(steps(await case.store.list_updates("session")), wanted, "the updates")
        if case.can("trajectories"):
            traces = await case.store.list_traces("session")
            equal(sorted(traces), sorted(f"trace-{number}" for number in wanted), "the traces")
        if case.can("planner_events"):
            equal(len(await case.store.list_planner_events("trace")), SAVED, "how many planner events there are")
        if case.can("memory_state"):
            states = [await case.store.load_memory_state(f"key-{number}") for number in wanted]
            equal(states, [{"number": number} for number in wanted], "the states")


@process_law
async def two_processes_that_write_a_memory_lose_nothing(place: StatePlace) -> None:
    """Two processes that add to one state by load_memory_version and if_version, and retry, keep what both added."""
    names = ("one", "two")
    async with place.case() as case:
        if not case.can("memory_versions"):
            return
        async with AsyncExitStack() as stack:
            processes = [
                await stack.enter_async_context(child.start(place, child.add, name=name, count=ADDED)) for name in names
            ]
            for process in processes:
                await process.ready()
            for process in processes:
                process.go()
            for process in processes:
                await process.answer()
        found = await case.store.load_memory_state("key")
        wanted = sorted(f"{name}-{number}" for name in names for number in range(ADDED))
        equal(sorted(found["items"]), wanted, "what was added")
