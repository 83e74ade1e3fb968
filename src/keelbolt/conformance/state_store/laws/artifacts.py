"""Artifacts, where the store has an artifact store."""

from __future__ import annotations

import asyncio
import hashlib

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.state_store.samples import ids, seen
from keelbolt.conformance.state_store.subject import StateStoreCase, law
from keelbolt.state.artifacts import SupportsArtifactStore, discover_artifact_store


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
