"""States of memories, and of tools."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.state_store.child import added
from keelbolt.conformance.state_store.samples import PAYLOAD
from keelbolt.conformance.state_store.subject import StateStoreCase, StateStorePlace, law, place_law


@law("memory_state")
async def memory_is_loaded(case: StateStoreCase) -> None:
    """A state is loaded as it was saved, any number of times."""
    await case.store.save_memory_state("tenant:user:session", copy.deepcopy(PAYLOAD))
    for _ in range(2):
        equal(await case.store.load_memory_state("tenant:user:session"), PAYLOAD, "the state")


@law("memory_state")
async def an_unknown_key_is_none(case: StateStoreCase) -> None:
    """load_memory_state returns None for an unknown key, and an empty state for a saved empty state."""
    equal(await case.store.load_memory_state("nonexistent:key"), None, "an unknown key")
    await case.store.save_memory_state("key", {})
    equal(await case.store.load_memory_state("key"), {}, "an empty state")


@law("memory_state")
async def memory_is_replaced(case: StateStoreCase) -> None:
    """A state that is saved again replaces the one before completely."""
    await case.store.save_memory_state("key", {"a": 1, "b": 2})
    await case.store.save_memory_state("key", {"a": 3})
    equal(await case.store.load_memory_state("key"), {"a": 3}, "the state")


@law("memory_state")
async def keys_are_separate_and_may_be_long(case: StateStoreCase) -> None:
    """Keys that begin alike are different keys, also after 300 characters."""
    keys = ["a", "a:b", "A", "a ", "kv:v1:" + "x" * 300, "kv:v1:" + "x" * 300 + ":y"]
    for number, key in enumerate(keys):
        await case.store.save_memory_state(key, {"number": number})
    found = [await case.store.load_memory_state(key) for key in keys]
    equal(found, [{"number": number} for number in range(len(keys))], "the states")


@law("memory_state")
async def a_saved_memory_is_a_copy(case: StateStoreCase) -> None:
    """Changes that a caller makes to a state it saved or loaded, at any depth, are not stored."""
    state = {"deep": {"list": [1]}}
    await case.store.save_memory_state("key", state)
    state["deep"]["list"].append(2)
    loaded = await case.store.load_memory_state("key")
    loaded["deep"]["list"].append(3)
    equal(await case.store.load_memory_state("key"), {"deep": {"list": [1]}}, "the state")


@law("memory_versions")
async def if_version_refuses_a_stale_memory(case: StateStoreCase) -> None:
    """save_memory_state with if_version raises and saves nothing if another save came in between."""
    state, version = await case.store.load_memory_version("key")
    equal((state, version), (None, 0), "an unknown key and its version")
    await case.store.save_memory_state("key", {"number": 1}, if_version=0)
    _, version = await case.store.load_memory_version("key")
    await case.store.save_memory_state("key", {"number": 2}, if_version=version)
    for wrong in (0, version):
        expect(not await _saved(case, {"number": 3}, wrong), f"a state was saved over version {wrong}, which is older")
    equal(await case.store.load_memory_state("key"), {"number": 2}, "the state")


@place_law("persistent")
async def two_writers_of_a_memory_lose_nothing(place: StateStorePlace) -> None:
    """Two stores that add to one state by load_memory_version and if_version, and retry, lose no item."""
    async with place.open() as one, place.open() as two:
        if not one.can("memory_versions"):
            return

        await asyncio.gather(added(one, "one", 10), added(two, "two", 10))
        found = await one.store.load_memory_state("key")
        wanted = {f"{name}-{number}" for name in ("one", "two") for number in range(10)}
        equal(set(found["items"]), wanted, "the added values")


async def _saved(case: StateStoreCase, state: dict[str, Any], version: int) -> bool:
    try:
        await case.store.save_memory_state("key", state, if_version=version)
    except Exception:  # noqa: BLE001  (each store has errors of its own)
        return False
    return True
