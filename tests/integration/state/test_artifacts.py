"""Artifacts on every engine: separate per session, within every limit, and removed when they expire."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import penguiflow.artifacts as theirs
import pytest

from keelbolt.errors import (
    ArtifactLimitExceeded,
    ArtifactTooLarge,
    InvalidState,
    StateNotLoaded,
    StateNotSaved,
    StorageUnreachable,
)
from keelbolt.kernel import open_storage
from keelbolt.kernel.blobs import STAGED_SECONDS
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.state import StateStore
from keelbolt.state.artifacts import ArtifactStore, ScopedArtifacts, discover_artifact_store
from keelbolt.state.artifacts.record import Owner, Total
from keelbolt.state.families import ARTIFACT_TOTALS, FAMILIES, partition_of
from keelbolt.state.types import ArtifactRetentionConfig, ArtifactScope
from keelbolt.testing.clock import FakeClock
from tests.integration.state.conftest import ENGINES, store_url

PARTITION = partition_of("default")


class Case:
    """A kernel, and artifact stores on it with a manual clock."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.now = 1_800_000_000.0

    def store(self, **limits: Any) -> ArtifactStore:
        context = StateStore(self.kernel, types="own").desk
        return ArtifactStore(context, retention=ArtifactRetentionConfig(**limits), clock=lambda: self.now)

    async def total(self, group: str) -> Total:
        record = await self.kernel.get(PARTITION, ARTIFACT_TOTALS, group)
        return Total.load(None if record is None else record.body)


@pytest.fixture(params=ENGINES)
async def case(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Case]:
    async with open_storage(store_url(request.param, request, tmp_path), declare=FAMILIES) as kernel:
        yield Case(kernel)


@pytest.fixture
async def memory() -> AsyncIterator[Case]:
    async with open_storage("memory:", declare=FAMILIES) as kernel:
        yield Case(kernel)


def scope(session: str = "s", *, tenant: str = "t", user: str = "u", trace: str | None = None) -> ArtifactScope:
    return ArtifactScope(tenant_id=tenant, user_id=user, session_id=session, trace_id=trace)


async def ids(store: ArtifactStore, wanted: ArtifactScope | None = None) -> list[str]:
    return [ref.id for ref in await store.list(scope=wanted)]


# ------------------------------------------------------------------------------------------------------ put and get


async def test_artifacts_survive_a_round_trip(case: Case) -> None:
    store = case.store()
    ref = await store.put_bytes(
        b"\0data", mime_type="image/png", filename="a.png", namespace="tool x", scope=scope(trace="r"), meta={"a": (1,)}
    )
    text = await store.put_text("grüße", scope=scope())
    assert (ref.id.startswith("tool_x_"), len(ref.id)) == (True, len("tool_x_") + 12)
    assert (ref.mime_type, ref.size_bytes, ref.filename, ref.namespace) == ("image/png", 5, "a.png", "tool x")
    assert (ref.scope, ref.source) == (scope(trace="r"), {"a": (1,)})
    assert (await store.get(ref.id), await store.get(text.id)) == (b"\0data", "grüße".encode())
    assert (text.mime_type, text.id[:4]) == ("text/plain", "art_")
    assert await store.get_ref(ref.id) == ref
    assert await store.exists(ref.id)
    assert await ids(store) == sorted([ref.id, text.id])


@pytest.mark.parametrize("unknown", ["", "nothing", "a" * 10_000, "a\0b", "a/b", "\ud800"])
async def test_an_unknown_id_returns_none(memory: Case, unknown: str) -> None:
    store = memory.store()
    assert await store.get(unknown) is None
    assert await store.get_ref(unknown) is None
    assert await store.open(unknown) is None
    assert not await store.exists(unknown)
    assert not await store.delete(unknown)


async def test_equal_bytes_are_stored_once_and_renewed(case: Case) -> None:
    store = case.store(ttl_seconds=100)
    first = await store.put_bytes(b"x", filename="first", scope=scope())
    case.now += 90
    again = await store.put_bytes(b"x", filename="second", scope=scope())
    assert again == first
    case.now += 90
    assert await store.get(first.id) == b"x"
    assert await case.total(Owner.of(scope()).session) == Total(1, 1)


async def test_equal_bytes_of_two_sessions_are_independent(case: Case) -> None:
    """Another session, user or tenant has another artifact, which stays when the first is deleted."""
    store = case.store()
    owners = [scope(), scope("other"), scope(user="other"), scope(tenant="other")]
    refs = [await store.put_bytes(b"same", scope=owner) for owner in owners]
    assert len({ref.id for ref in refs}) == 4
    assert await store.delete(refs[0].id)
    assert not await store.delete(refs[0].id)
    assert [await store.get(ref.id) for ref in refs] == [None, b"same", b"same", b"same"]
    assert await ids(store, scope()) == []
    assert await ids(store, scope("other")) == [refs[1].id]
    assert await case.total(Owner.of(scope()).session) == Total()


async def test_different_bytes_with_the_same_short_hash(memory: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keelbolt.state.artifacts.record.HASH_CHARS", (0, 12))
    store = memory.store()
    one, two = await store.put_bytes(b"1", scope=scope()), await store.put_bytes(b"2", scope=scope())
    assert (one.id, len(two.id)) == ("art_", 16)
    assert (await store.get(one.id), await store.get(two.id)) == (b"1", b"2")
    assert (await store.put_bytes(b"2", scope=scope())).id == two.id


async def test_lists_by_scope(case: Case) -> None:
    store = case.store()
    owners = [scope(trace="1"), scope(trace="2"), scope("other", trace="1"), None]
    refs = []
    for number, owner in enumerate(owners):
        case.now += 1
        refs.append((await store.put_bytes(bytes([number]), scope=owner)).id)
    assert await ids(store) == refs
    assert await ids(store, ArtifactScope()) == refs
    assert await ids(store, scope()) == refs[:2]
    assert await ids(store, ArtifactScope(trace_id="1")) == [refs[0], refs[2]]
    assert await ids(store, ArtifactScope(tenant_id="unknown")) == []
    assert (await store.get_ref(refs[3])).scope is None  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------------------- streams


async def test_streams(case: Case, tmp_path: Path) -> None:
    """Input from a stream, an open file and a path; output in chunks, ranges and as a whole."""
    data = bytes(range(256)) * 3000  # three chunks
    (tmp_path / "file").write_bytes(data)

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    store = case.store()
    refs = [await store.put_stream(source, scope=scope()) for source in (chunks(), io.BytesIO(data), tmp_path / "file")]
    assert len({ref.id for ref in refs}) == 1
    reader = await store.open(refs[0].id)
    assert reader is not None
    assert (reader.size, reader.ref.sha256) == (len(data), refs[0].sha256)
    assert b"".join([chunk async for chunk in reader.chunks()]) == data
    assert await reader.range(300_000, 300_010) == data[300_000:300_010]
    assert await store.get(refs[0].id) == data


async def test_a_stream_that_is_too_long_is_not_read_to_its_end(memory: Case, tmp_path: Path) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1000

    store = memory.store(max_artifact_bytes=10_000)
    with pytest.raises(ArtifactTooLarge):
        await store.put_stream(endless())
    assert taken == 11
    (tmp_path / "file").write_bytes(b"x" * 10_001)
    with pytest.raises(ArtifactTooLarge):
        await store.put_stream(tmp_path / "file")
    with pytest.raises(ArtifactTooLarge):
        await store.put_stream(io.BytesIO(b"x" * 10_001))
    assert await ids(store) == []


async def test_invalid_content_is_refused(memory: Case) -> None:
    store: Any = memory.store()
    for wrong in (5, "text", None, [1]):
        with pytest.raises(InvalidState, match="put_bytes"):
            await store.put_bytes(wrong)
        with pytest.raises(InvalidState, match="put_stream"):
            await store.put_stream(wrong)
    with pytest.raises(InvalidState, match="put_text"):
        await store.put_text(b"bytes")
    assert await ids(store) == []


async def test_a_failing_stream_stores_nothing(memory: Case) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise ConnectionError

    store = memory.store()
    with pytest.raises(ConnectionError):
        await store.put_stream(broken())
    assert await ids(store) == []


# -------------------------------------------------------------------------------------------------------- retention


@pytest.mark.parametrize("strategy", ["lru", "fifo"])
@pytest.mark.parametrize(
    ("limits", "group"),
    [
        ({"max_artifacts_per_session": 3}, "session"),
        ({"max_session_bytes": 30}, "session"),
        ({"max_artifacts_per_trace": 3}, "trace"),
        ({"max_trace_bytes": 30}, "trace"),
    ],
)
async def test_a_full_group_removes_artifacts(case: Case, strategy: str, limits: dict[str, int], group: str) -> None:
    """The least recently used or the oldest artifact is removed; other sessions and traces are not affected."""
    store = case.store(cleanup_strategy=strategy, **limits)
    other = await store.put_bytes(b"z" * 10, scope=scope("other", trace="other"))
    refs = [(await store.put_bytes(bytes([number]) * 10, scope=scope(trace="r"))).id for number in range(3)]
    await store.get(refs[0])
    refs.append((await store.put_bytes(b"d" * 10, scope=scope(trace="r"))).id)
    gone = refs[1] if strategy == "lru" else refs[0]
    assert set(await ids(store, scope())) == set(refs) - {gone}
    assert await store.exists(other.id)
    owner = Owner.of(scope(trace="r"))
    assert await case.total(owner.session) == Total(3, 30)
    assert await case.total(owner.trace or "") == Total(3, 30)
    if group == "trace":
        more = await store.put_bytes(b"e" * 10, scope=scope(trace="r2"))
        assert len(await ids(store, scope())) == 4
        assert await store.exists(more.id)


async def test_both_limits_at_once(memory: Case) -> None:
    """Artifacts removed for the session also count for the trace."""
    store = memory.store(cleanup_strategy="fifo", max_artifacts_per_session=3, max_artifacts_per_trace=2)
    for number, trace in enumerate("aabb"):
        await store.put_bytes(bytes([number]), scope=scope(trace=trace))
    assert len(await ids(store, scope())) == 3
    await store.put_bytes(b"x", scope=scope(trace="b"))
    assert [ref.scope.trace_id for ref in await store.list(scope=scope())].count("b") == 2
    for number, trace in enumerate("bba"):
        await store.put_bytes(bytes([number]), scope=scope("other", trace=trace))
    await store.put_bytes(b"x", scope=scope("other", trace="b"))
    assert sorted(ref.scope.trace_id for ref in await store.list(scope=scope("other"))) == ["a", "b", "b"]
    assert await memory.total(Owner.of(scope("other")).session) == Total(3, 3)


async def test_cleanup_none_refuses_when_full(case: Case) -> None:
    store = case.store(cleanup_strategy="none", max_artifacts_per_session=1)
    ref = await store.put_bytes(b"1", scope=scope())
    with pytest.raises(ArtifactLimitExceeded, match="session"):
        await store.put_bytes(b"2", scope=scope())
    assert await ids(store) == [ref.id]
    assert await store.put_bytes(b"1", scope=scope()) == ref
    assert await store.put_bytes(b"2", scope=scope("other"))


@pytest.mark.parametrize("limits", [{"max_artifact_bytes": 4}, {"max_session_bytes": 4}, {"max_trace_bytes": 4}])
async def test_an_artifact_over_the_limit_is_refused_and_removes_nothing(memory: Case, limits: dict[str, int]) -> None:
    store = memory.store(**limits)
    ref = await store.put_bytes(b"1234", scope=scope(trace="r"))
    with pytest.raises(ArtifactTooLarge) as caught:
        await store.put_bytes(b"12345", scope=scope(trace="r"))
    assert isinstance(caught.value, ValueError)  # as penguiflow's own store raises
    assert await ids(store) == [ref.id]


async def test_expired_artifacts(case: Case) -> None:
    """Expired artifacts are invisible at once and removed by the next sweep; values of ctx.kv stay."""
    store = case.store(ttl_seconds=60)
    spill = await store.put_text("{}", namespace="session_kv", scope=scope())
    ref = await store.put_bytes(b"1", scope=scope())
    case.now += 59
    assert await store.exists(ref.id)
    case.now += 1
    assert [await store.get(ref.id), await store.get_ref(ref.id), await store.open(ref.id)] == [None] * 3
    assert not await store.delete(ref.id)
    assert await ids(store) == [spill.id]
    await store.put_bytes(b"2", scope=scope())
    case.now += 60
    assert (await store.sweep(), await store.sweep()) == (1, 0)
    assert await case.total(Owner.of(scope()).session) == Total(1, 2)
    case.now += 10**9
    assert await store.get(spill.id) == b"{}"


async def test_puts_sweep_from_time_to_time(memory: Case) -> None:
    """The storage does not grow without limit, even if sweep is never called."""
    store = memory.store(ttl_seconds=10)
    for number in range(3):
        await store.put_bytes(bytes([number]))
    memory.now += 59
    await store.put_bytes(b"x")
    assert (await memory.kernel.stats()).records["state_artifacts"] == 4
    memory.now += 1
    await store.put_bytes(b"y")
    assert (await memory.kernel.stats()).records["state_artifacts"] == 2


async def test_without_a_ttl_artifacts_do_not_expire(memory: Case) -> None:
    store = memory.store(ttl_seconds=0)
    ref = await store.put_bytes(b"1")
    memory.now += 10**9
    assert await store.get(ref.id) == b"1"


async def test_expired_artifacts_are_removed_first(memory: Case) -> None:
    store = memory.store(ttl_seconds=60, max_artifacts_per_session=2, cleanup_strategy="lru")
    old = await store.put_bytes(b"1", scope=scope())
    memory.now += 50
    young = await store.put_bytes(b"2", scope=scope())
    await store.get(old.id)  # used last, but expired first
    memory.now += 20
    await store.put_bytes(b"3", scope=scope())
    assert await store.exists(young.id)


async def test_values_of_kv_are_never_removed_to_make_room(memory: Case) -> None:
    store = memory.store(max_artifacts_per_session=2)
    spills = [await store.put_text(text, namespace="session_kv", scope=scope()) for text in "ab"]
    with pytest.raises(ArtifactLimitExceeded):
        await store.put_bytes(b"1", scope=scope())
    assert await ids(store) == sorted(ref.id for ref in spills)


async def test_concurrent_puts_keep_the_limits(case: Case) -> None:
    """Two stores, as in two processes, write to one session: the totals match the stored artifacts."""
    stores = [case.store(max_artifacts_per_session=5, max_session_bytes=1000) for _ in range(2)]
    work = [
        stores[number % 2].put_bytes(bytes([number]) * 10, scope=scope(trace=str(number % 3))) for number in range(16)
    ]
    await asyncio.gather(*work)
    kept = await stores[0].list(scope=scope())
    assert len(kept) == 5
    assert await case.total(Owner.of(scope()).session) == Total(5, 50)
    for trace in "012":
        count = sum(ref.scope.trace_id == trace for ref in kept)
        assert await case.total(Owner.of(scope(trace=trace)).trace or "") == Total(count, count * 10)
    stats = await case.kernel.stats()
    assert stats.records["state_artifacts"] == 5


async def test_a_deleted_artifact_releases_its_bytes() -> None:
    """Two sessions hold the same bytes; they are removed after the second deletion and the grace period."""
    clock = FakeClock()
    async with MemoryKernel(declare=FAMILIES, clock=clock) as kernel:
        store = Case(kernel).store()
        one, two = await store.put_bytes(b"x", scope=scope()), await store.put_bytes(b"x", scope=scope("2"))
        for ref, left in ((one, 1), (two, 0)):
            await store.delete(ref.id)
            clock.advance(STAGED_SECONDS + 1)
            await kernel.sweep()
            assert (await kernel.stats()).blobs == left
        assert (await kernel.stats()).records == {}


# ------------------------------------------------------------------------------------------------ scope, discovery


def view(store: ArtifactStore, session: str | None = "s", kind: Any = ScopedArtifacts) -> Any:
    return kind(store, tenant_id="t", user_id="u", session_id=session, trace_id="r")


@pytest.mark.parametrize("kind", [ScopedArtifacts, theirs.ScopedArtifacts])
async def test_a_scope_is_enforced(memory: Case, kind: Any) -> None:
    """Keelbolt's view enforces the scope, and so does penguiflow's view of Keelbolt's store."""
    store = memory.store()
    mine, others = view(store, kind=kind), view(store, "other", kind)
    ref = await mine.upload(b"x", filename="f")
    text = await mine.upload("text")
    assert (text.mime_type, ref.scope.session_id, ref.scope.trace_id) == ("text/plain", "s", "r")
    assert await mine.download(ref.id) == b"x"
    assert await mine.get_metadata(ref.id) == ref
    assert {found.id for found in await mine.list()} == {ref.id, text.id}
    assert await others.download(ref.id) is None
    assert await others.get_metadata(ref.id) is None
    assert not await others.exists(ref.id)
    assert not await others.delete(ref.id)
    assert await others.list() == []
    assert await view(store, None, kind).exists(ref.id)
    open_to_all = await store.put_bytes(b"y")
    assert await others.download(open_to_all.id) == b"y"
    assert await mine.delete(ref.id)
    assert await mine.download("unknown") is None
    assert await store.get_with_session_check(text.id, "s") == b"text"
    assert await store.get_with_session_check(text.id, "other") is None
    with pytest.raises(AttributeError):
        mine.anything = 1


async def test_penguiflow_finds_the_store(memory: Case) -> None:
    store = memory.store()

    class State:
        artifact_store = store

    class Six:
        """A store with the older methods, without list."""

        async def put_bytes(self) -> None: ...

    assert isinstance(store, theirs.ArtifactStore)
    for discover in (theirs.discover_artifact_store, discover_artifact_store):
        assert discover(State()) is store
        assert discover(store) is store
        assert discover(Six()) is None
        assert discover(None) is None


async def test_penguiflows_classes_are_returned_if_it_is_installed(memory: Case) -> None:
    store = StateStore(memory.kernel, artifact_retention=theirs.ArtifactRetentionConfig()).artifact_store
    ref = await store.put_text("x", scope=theirs.ArtifactScope(session_id="s"))
    assert type(ref) is theirs.ArtifactRef
    assert type(ref.scope) is theirs.ArtifactScope


# ------------------------------------------------------------------------------------- in a thread, and when it fails


async def test_a_stream_is_read_in_the_loop_of_its_caller(tmp_path: Path) -> None:
    """The store has its own thread; the stream belongs to the caller's thread."""
    here = asyncio.get_running_loop()

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(5):
            await asyncio.sleep(0)
            assert asyncio.get_running_loop() is here
            yield bytes([number]) * 100_000

    async with StateStore(f"sqlite:///{tmp_path}/state.db") as state:
        store = state.artifact_store
        ref = await store.put_stream(chunks(), filename="big")
        reader = await store.open(ref.id)
        assert reader is not None
        assert [len(chunk) async for chunk in reader.chunks()] == [262_144, 237_856]
        assert (await store.get(ref.id) or b"")[-1] == 4
        assert discover_artifact_store(state) is theirs.discover_artifact_store(state) is store


async def test_two_stores_of_one_storage_keep_the_limits_together(shared_url: str) -> None:
    """Each store has its own kernel and thread, as in two processes."""
    retention = ArtifactRetentionConfig(max_artifacts_per_session=4)
    async with StateStore(shared_url, artifact_retention=retention) as one:
        await one.artifact_store.put_bytes(b"first", scope=scope())
        async with StateStore(shared_url, artifact_retention=retention) as two:
            puts = [
                store.artifact_store.put_bytes(bytes([number]), scope=scope())
                for number in range(6)
                for store in (one, two)
            ]
            refs = await asyncio.gather(*puts)
            kept = await two.artifact_store.list(scope=scope())
            assert len(kept) == 4
            assert {ref.id for ref in kept} <= {ref.id for ref in refs}
            assert [await one.artifact_store.get(ref.id) is not None for ref in kept] == [True] * 4


class Silent(MemoryKernel):
    """A storage that never responds."""

    async def _stage_chunk(self, *_arguments: Any) -> None:
        await asyncio.get_running_loop().create_future()

    async def _blob_chunk(self, *_arguments: Any) -> Any:
        await asyncio.get_running_loop().create_future()


async def test_calls_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Silent(declare=FAMILIES) as kernel:
        store = StateStore(kernel, timeout_seconds=0.05).artifact_store
        with pytest.raises(StateNotSaved, match="did not respond") as caught:
            await store.put_bytes(b"x")
        assert caught.value.retryable
        with monkeypatch.context() as answering:
            answering.setattr(Silent, "_stage_chunk", MemoryKernel._stage_chunk)
            ref = await store.put_bytes(b"x")
        with pytest.raises(StateNotLoaded, match="did not respond"):
            await store.get(ref.id)


async def test_text_that_utf8_can_not_encode_is_refused() -> None:
    async with StateStore("memory:") as state:
        with pytest.raises(InvalidState, match="UTF-8"):
            await state.artifact_store.put_text("\ud800")


class Away(MemoryKernel):
    """A storage that is unavailable."""

    async def get(self, *_arguments: Any) -> Any:
        raise StorageUnreachable


@pytest.mark.parametrize("policy", ["strict", "resilient"])
async def test_an_outage_raises(policy: Any) -> None:
    """Puts and reads raise under both policies: a failed read must not look like a missing artifact."""
    async with Away(declare=FAMILIES) as kernel:
        store = StateStore(kernel, policy=policy).artifact_store
        with pytest.raises(StateNotSaved) as caught:
            await store.put_bytes(b"x")
        assert caught.value.retryable
        for load in (store.get, store.get_ref, store.exists):
            with pytest.raises(StateNotLoaded):
                await load("x")


async def test_many_artifacts_at_once_into_one_session(shared_url: str) -> None:
    """Concurrent puts share commits: no put times out, and the session has as many artifacts as its limit allows."""
    retention = ArtifactRetentionConfig(max_artifacts_per_session=500)
    async with StateStore(shared_url, artifact_retention=retention, timeout_seconds=10) as store:
        scope = ArtifactScope(session_id="hot")
        put = [store.artifact_store.put_bytes(b"%d" % number, scope=scope) for number in range(600)]
        refs = await asyncio.gather(*put)
        assert len({ref.id for ref in refs}) == 600
        assert len(await store.artifact_store.list(scope=scope)) == 500


async def test_a_large_artifact_replaces_more_than_one_commit_can_remove(memory: Case) -> None:
    store = memory.store(max_session_bytes=1000)
    scopes = [ArtifactScope(session_id="session", trace_id=f"trace-{number}") for number in range(400)]
    await asyncio.gather(*(store.put_bytes(b"", namespace=f"n{at}", scope=one) for at, one in enumerate(scopes[:200])))
    await asyncio.gather(*(store.put_bytes(b"x", namespace=f"n{at}", scope=one) for at, one in enumerate(scopes)))
    ref = await store.put_bytes(b"x" * 1000, scope=scopes[0])
    assert await store.list() == [ref]
    assert await memory.total(Owner(session_id="session").session) == Total(1, 1000)


async def test_stores_that_replace_expired_artifacts_at_once(case: Case) -> None:
    """A commit that another process made first is not an error of the put."""
    scope = ArtifactScope(session_id="session")
    stores = [case.store(ttl_seconds=10) for _ in range(20)]
    for number in range(len(stores)):
        await stores[0].put_bytes(b"%d" % number, scope=scope)
    case.now += 30
    await asyncio.gather(*(store.put_bytes(b"%d" % number, scope=scope) for number, store in enumerate(stores)))
    assert len(await stores[0].list()) == len(stores)
