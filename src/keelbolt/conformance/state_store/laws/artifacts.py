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
    expect(found is not None, "artifact_store lacks a method, so that penguiflow does not see it (list is one of them)")
    assert found is not None
    return found


@law("artifacts")
async def the_artifact_store_is_found(case: StateStoreCase) -> None:
    """artifact_store has all seven methods: what lacks one is not seen by penguiflow."""
    artifacts(case)


@law("artifacts")
async def artifacts_come_back(case: StateStoreCase) -> None:
    """Bytes and texts come back, and their references tell what they are."""
    store = artifacts(case)
    ref = await store.put_bytes(
        b"\x00data", mime_type="image/png", filename="a.png", namespace="tool", scope=case.scope(), meta={"a": 1}
    )
    text = await store.put_text("grüße", scope=case.scope())
    equal((await store.get(ref.id), await store.get(text.id)), (b"\x00data", "grüße".encode()), "the contents")
    found = await store.get_ref(ref.id)
    expect(found is not None, "there is no reference")
    equal(seen(found), seen(ref), "the reference")
    told = (ref.mime_type, ref.size_bytes, ref.filename, ref.namespace, ref.source, ref.scope.session_id)
    equal(told, ("image/png", 5, "a.png", "tool", {"a": 1}, "session"), "what the reference tells")
    expect(ref.sha256 in (None, hashlib.sha256(b"\x00data").hexdigest()), "the reference has another SHA-256")
    expect(await store.exists(ref.id), "the artifact does not exist")


@law("artifacts")
async def an_unknown_artifact_is_none(case: StateStoreCase) -> None:
    """An id nobody knows is None or False, and no error."""
    store = artifacts(case)
    found = (await store.get("unknown"), await store.get_ref("unknown"), await store.exists("unknown"))
    equal(found, (None, None, False), "get, get_ref and exists")
    equal(await store.delete("unknown"), False, "delete")


@law("artifacts")
async def a_deleted_artifact_is_gone(case: StateStoreCase) -> None:
    """delete answers True once; then the artifact is nowhere."""
    store = artifacts(case)
    ref = await store.put_bytes(b"data", scope=case.scope())
    equal([await store.delete(ref.id), await store.delete(ref.id)], [True, False], "delete, twice")
    found = (await store.get(ref.id), await store.get_ref(ref.id), await store.exists(ref.id))
    equal(found, (None, None, False), "get, get_ref and exists")
    equal(await store.list(scope=case.scope()), [], "the list")


@law("artifacts")
async def artifacts_are_listed_by_scope(case: StateStoreCase) -> None:
    """list has those whose scope has every field that is asked for; no scope lists all."""
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
    """What one session stores or deletes leaves the same bytes of another session where they are."""
    store = artifacts(case)
    one = await store.put_bytes(b"same", scope=case.scope("one"))
    two = await store.put_bytes(b"same", scope=case.scope("two"))
    for name, ref in (("one", one), ("two", two)):
        found = await store.get_ref(ref.id)
        equal(None if found is None else found.scope.session_id, name, f"whose the artifact of session {name} is")
    await store.delete(one.id)
    equal(await store.get(two.id), b"same", "the second session's artifact, after the first one's was deleted")


@law("artifacts")
async def artifacts_put_at_once_are_all_kept(case: StateStoreCase) -> None:
    """Of a hundred artifacts that are put into one session at once each is kept, and none is refused."""
    store = artifacts(case)
    contents = [f"content {number}".encode() for number in range(100)]
    refs = await asyncio.gather(*(store.put_bytes(content, scope=case.scope()) for content in contents))
    equal([await store.get(ref.id) for ref in refs], contents, "the contents")
    equal(len(await store.list(scope=case.scope())), len(contents), "how many artifacts are listed")
