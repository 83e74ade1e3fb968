"""States of memories and of tools, and artifacts."""

from __future__ import annotations

import asyncio
import copy
import hashlib
from typing import Any

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.state_store.child import added
from keelbolt.conformance.state_store.subject import PAYLOAD, StateStoreCase, StateStorePlace, ids, law, place_law, seen
from keelbolt.state.artifacts import SupportsArtifactStore, discover_artifact_store


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


# ------------------------------------------------------------------------------------------------------------ artifacts


def artifacts(case: StateStoreCase) -> SupportsArtifactStore:
    found = discover_artifact_store(case.store)
    expect(found is not None, "artifact_store lacks a method, so penguiflow ignores it (list is required too)")
    assert found is not None
    return found


@law("artifacts")
async def the_artifact_store_is_found(case: StateStoreCase) -> None:
    """artifact_store has all seven methods, otherwise penguiflow ignores it."""
    artifacts(case)


@law("artifacts")
async def artifacts_are_loaded(case: StateStoreCase) -> None:
    """Bytes and texts are loaded as they were put, and their references describe them."""
    store = artifacts(case)
    ref = await store.put_bytes(
        b"\x00data", mime_type="image/png", filename="a.png", namespace="tool", scope=case.scope(), meta={"a": 1}
    )
    text = await store.put_text("grüße", scope=case.scope())
    equal((await store.get(ref.id), await store.get(text.id)), (b"\x00data", "grüße".encode()), "the contents")
    found = await store.get_ref(ref.id)
    expect(found is not None, "there is no reference")
    equal(seen(found), seen(ref), "the reference")
    reported = (ref.mime_type, ref.size_bytes, ref.filename, ref.namespace, ref.source, ref.scope.session_id)
    equal(reported, ("image/png", 5, "a.png", "tool", {"a": 1}, "session"), "the fields of the reference")
    expect(ref.sha256 in (None, hashlib.sha256(b"\x00data").hexdigest()), "the reference has another SHA-256")
    expect(await store.exists(ref.id), "the artifact does not exist")


@law("artifacts")
async def an_unknown_artifact_is_none(case: StateStoreCase) -> None:
    """An unknown id returns None or False, without an error."""
    store = artifacts(case)
    found = (await store.get("unknown"), await store.get_ref("unknown"), await store.exists("unknown"))
    equal(found, (None, None, False), "get, get_ref and exists")
    equal(await store.delete("unknown"), False, "delete")


@law("artifacts")
async def a_deleted_artifact_is_gone(case: StateStoreCase) -> None:
    """delete returns True once; then no method finds the artifact."""
    store = artifacts(case)
    ref = await store.put_bytes(b"data", scope=case.scope())
    equal([await store.delete(ref.id), await store.delete(ref.id)], [True, False], "delete, twice")
    found = (await store.get(ref.id), await store.get_ref(ref.id), await store.exists(ref.id))
    equal(found, (None, None, False), "get, get_ref and exists")
    equal(await store.list(scope=case.scope()), [], "the list")


@law("artifacts")
async def artifacts_are_listed_by_scope(case: StateStoreCase) -> None:
    """list returns the artifacts whose scope has every field of the filter; without a scope it returns all."""
    store = artifacts(case)
    mine = await store.put_bytes(b"1", scope=case.scope(trace="a"))
    other = await store.put_bytes(b"2", scope=case.scope("other", trace="a"))
    equal(ids(await store.list(scope=case.scope()), "id"), [mine.id], "those of a session")
    equal(ids(await store.list(scope=case.scope("unknown")), "id"), [], "those of an unknown session")
    wanted = case.types.ArtifactScope(trace_id="a")
    equal(sorted(ids(await store.list(scope=wanted), "id")), sorted([mine.id, other.id]), "those of a trace")
    equal(sorted(ids(await store.list(), "id")), sorted([mine.id, other.id]), "all")


@law("artifacts")
async def equal_bytes_of_two_sessions_are_two_artifacts(case: StateStoreCase) -> None:
    """A put or delete in one session does not affect the same bytes in another."""
    store = artifacts(case)
    one = await store.put_bytes(b"same", scope=case.scope("one"))
    two = await store.put_bytes(b"same", scope=case.scope("two"))
    for name, ref in (("one", one), ("two", two)):
        found = await store.get_ref(ref.id)
        equal(None if found is None else found.scope.session_id, name, f"the session of the artifact of session {name}")
    await store.delete(one.id)
    equal(await store.get(two.id), b"same", "the second session's artifact, after the first one's was deleted")


@law("artifacts")
async def concurrent_puts_are_all_stored(case: StateStoreCase) -> None:
    """A hundred concurrent puts into one session are all stored, and none is refused."""
    store = artifacts(case)
    contents = [f"content {number}".encode() for number in range(100)]
    refs = await asyncio.gather(*(store.put_bytes(content, scope=case.scope()) for content in contents))
    equal([await store.get(ref.id) for ref in refs], contents, "the contents")
    equal(len(await store.list(scope=case.scope())), len(contents), "the number of listed artifacts")
