"""An export, taken in elsewhere, is the same state: ids, order and values; also on another engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import InvalidState, StateNotFound
from keelbolt.state import ArtifactRetentionConfig, ArtifactScope, StateStore
from keelbolt.state.transfer import export_session, export_tenant, export_trace, import_state
from keelbolt.storage import Kernel
from tests.integration.state.conftest import store_url
from tests.integration.state.things import binding, conversation, event, planned, steering, task, trajectory, update

ODD: dict[str, Any] = {
    "nan": float("inf"),
    "nul": "\0",
    "big": 10**400,
    "bytes": b"\0",
    "keys": {1: (2, 3)},
    "half": "\ud800",
}
FOREVER = ArtifactRetentionConfig(ttl_seconds=0)


async def fill(store: StateStore) -> None:
    """A session with everything, one of its traces also by itself."""
    store.save_events(event(float(number), n=number, **ODD) for number in range(3))
    store.save_event(event(9.0, **ODD))
    for number in range(5):
        store.save_update(update(number))
        store.save_planner_event("trace", planned(number, **ODD))
    store.save_trajectory("z-older", "session", trajectory("first"))
    await store.save_trajectory("trace", "session", trajectory("second"))
    for number in (2, 1):
        await store.save_task(task(number, trace_id="trace", result=ODD))
    await store.save_steering(steering(1))
    await store.save_remote_binding(conversation("remote"))
    await store.save_remote_binding(binding(task_id="other", context_id=None))
    await store.save_memory_state("t:u:session", {"turns": [ODD]})
    await store.artifact_store.put_bytes(
        b"bytes" * 100_000, mime_type="a/b", filename="f", scope=ArtifactScope(session_id="session"), meta={"m": 1}
    )
    await store.flush()


async def everything(store: StateStore) -> list[Any]:
    """What callers see of it."""
    artifacts = await store.artifact_store.list(scope=ArtifactScope(session_id="session"))
    return [
        list(await store.load_history("trace")),
        list(await store.list_planner_events("trace")),
        await store.list_tasks("session"),
        await store.list_updates("session"),
        await store.list_updates("session", since_id="update-2", limit=1),
        await store.list_steering("session"),
        await store.list_traces("session"),
        await store.get_trajectory("trace", "session"),
        await store.list_bindings(router_session_id="session"),
        await store.find_binding(router_session_id="session", agent_url="https://agent", remote_skill="skill"),
        await store.load_memory_state("t:u:session"),
        artifacts,
        [await store.artifact_store.get(ref.id) for ref in artifacts],
    ]


async def exported(store: StateStore, what: Any, *ids: str) -> list[bytes]:
    async def run(kernel: Kernel) -> list[bytes]:
        return [line async for line in what(kernel.scoped(store.partition), *ids)]

    return await store.host.ask(run)


async def imported(store: StateStore, lines: list[bytes]) -> dict[str, int]:
    async def run(kernel: Kernel) -> dict[str, int]:
        return dict((await import_state(kernel.scoped(store.partition), iter(lines))).kinds)

    return await store.host.ask(run)


@pytest.mark.parametrize("whole", [True, False], ids=["tenant", "session"])
async def test_there_and_back(whole: bool, url: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """From each engine to another one, and once more: the second time changes nothing."""
    (tmp_path / "b").mkdir()
    there = store_url("postgres" if url.startswith("sqlite") else "sqlite", request, tmp_path / "b")
    async with (
        StateStore(url, types="own", artifact_retention=FOREVER) as store,
        StateStore(there, types="own", tenant="other") as other,
    ):
        await fill(store)
        await store.save_update(update(1, session="another"))
        lines = await exported(store, export_tenant) if whole else await exported(store, export_session, "session")
        assert await everything(other) != await everything(store)
        for _ in range(2):
            assert (await imported(other, lines))["task"] == 2
            assert await everything(other) == await everything(store)
        assert (len(await other.list_updates("another")) == 1) is whole
        assert await other.list_sessions() == (["another", "session"] if whole else ["session"])


async def test_many_sessions(store: StateStore) -> None:
    """More than one commit may hold."""
    for number in range(450):
        store.save_task(task(1, f"session-{number}"))
    await store.flush()
    lines = await exported(store, export_tenant)
    async with StateStore("memory:", types="own") as other:
        assert (await imported(other, lines))["task"] == 450
        assert await other.list_sessions(1000) == await store.list_sessions(1000)
        assert len(await other.list_tasks("session-449")) == 1


async def test_a_trace_alone(store: StateStore) -> None:
    await fill(store)
    lines = await exported(store, export_trace, "trace")
    async with StateStore("memory:", types="own") as other:
        await imported(other, lines)
        assert list(await other.load_history("trace")) == list(await store.load_history("trace"))
        assert await other.get_trajectory("trace", "session") == await store.get_trajectory("trace", "session")
        assert await other.list_updates("session") == []


async def test_what_is_not_there(store: StateStore) -> None:
    for what, ids in ((export_trace, ["none"]), (export_session, ["none"]), (export_tenant, [])):
        with pytest.raises(StateNotFound):
            await exported(store, what, *ids)


async def test_what_is_no_export_is_told(file_url: str) -> None:
    async with StateStore(file_url, types="own") as store:
        await fill(store)
        lines = await exported(store, export_session, "session")
        for wrong, told in (
            ([], "no export"),
            ([b"{}"], "line 1"),
            ([b"nonsense"], "line 1"),
            ([b'{"kind":"task"}'], "no export"),
            ([b'{"kind":"keelbolt.state","format":2}'], "newer"),
            ([lines[0], b'{"kind":"task","data":{}}'], "line 2 is no 'task'"),
            ([lines[0], b'{"kind":"unknown","data":{}}'], "line 2"),
            (lines[:-1], "was cut"),
            ([line for line in lines if b'"chunk"' not in line], "bytes of an artifact"),
        ):
            async with StateStore("memory:", types="own") as other:
                with pytest.raises(InvalidState, match=told):
                    await imported(other, wrong)
