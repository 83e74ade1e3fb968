"""Jobs that the laws of several processes run in new processes; see `keelbolt.conformance.child`."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.child import CHILD_SECONDS, go, say
from keelbolt.conformance.state_store.subject import StateStoreCase


async def save_some(case: StateStoreCase, *, count: int) -> None:
    """Save ``count`` values of each kind, reply when all are awaited, and wait to be killed."""
    await go()
    for number in range(count):
        if case.can("memory_state"):
            await case.store.save_memory_state(f"key-{number}", {"number": number})
        if case.can("planner_events"):
            await case.store.save_planner_event("trace", case.planner_event(number))
        if case.can("trajectories"):
            await case.store.save_trajectory(f"trace-{number}", "session", case.trajectory())
        if case.can("tasks"):
            await case.store.save_update(case.update(number))
        await case.store.save_event(case.event(float(number)))
    say("saved")
    await asyncio.sleep(CHILD_SECONDS)


async def add(case: StateStoreCase, *, name: str, count: int) -> None:
    """Add items to the state under "key" by load_memory_version and if_version; reply with the failed attempts."""
    await go()
    say(await added(case, name, count))


async def added(case: StateStoreCase, name: str, count: int) -> int:
    """Add ``count`` items and retry until each is saved; returns the number of failed attempts."""
    failed = 0
    for number in range(count):
        while True:
            state, version = await case.store.load_memory_version("key")
            items = [*(state or {"items": []})["items"], f"{name}-{number}"]
            await asyncio.sleep(0)
            try:
                await case.store.save_memory_state("key", {"items": items}, if_version=version)
            except Exception:  # noqa: BLE001  (each store has errors of its own)
                failed += 1
            else:
                break
    return failed
