"""Capabilities of the store, configuration from the environment, and the hybrid store."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import penguiflow.state.protocol as theirs
import pytest

from keelbolt.errors import InvalidState, StateNotSaved
from keelbolt.state import (
    HybridStateStore,
    StateStore,
    create_session_store,
    create_store,
    missing_capabilities,
    protocols,
    require_capabilities,
)
from keelbolt.state.adapters import DURABLE, FAST

CAPABILITIES = [name for name in theirs.__all__ if name[0] == "S" and name != "StateStore"]


@pytest.mark.parametrize("name", [*CAPABILITIES, "StateStore"])
def test_the_store_has_all_capabilities_of_penguiflow(name: str) -> None:
    """The store has all methods of penguiflow's protocols, with their parameters."""
    their, our = getattr(theirs, name), getattr(protocols, "SupportsEvents" if name == "StateStore" else name)
    store = StateStore("memory:")
    assert isinstance(store, their)
    assert isinstance(store, our)
    for method, function in inspect.getmembers(their, inspect.isfunction):
        if method[0] != "_":
            wanted = [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]
            for kind in (our, StateStore):
                found = inspect.signature(getattr(kind, method)).parameters.values()
                assert [(one.name, one.kind, one.default) for one in found][: len(wanted)] == wanted


def test_missing_capabilities_are_named() -> None:
    store = StateStore("memory:")
    assert missing_capabilities(store, ["save_task", "fly"]) == ["fly"]
    with pytest.raises(TypeError, match=r"StateStore missing \['fly'\] required for feature=air"):
        require_capabilities(store, feature="air", methods=["fly"])
    require_capabilities(store, feature="sessions", methods=["save_task"])


def test_a_store_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEELBOLT_STATE_URL", raising=False)
    with pytest.raises(InvalidState, match="KEELBOLT_STATE_URL is not set"):
        create_store()
    monkeypatch.setenv("KEELBOLT_STATE_URL", "memory:")
    assert (create_store().tenant, create_store().policy) == ("default", "strict")
    store = create_store(
        {"KEELBOLT_STATE_URL": "memory:", "KEELBOLT_STATE_TENANT": "acme", "KEELBOLT_STATE_POLICY": "resilient"}
    )
    assert (store.tenant, store.policy, store.partition) == ("acme", "resilient", "~state/acme")


async def test_a_hybrid_store() -> None:
    async with HybridStateStore(StateStore("memory:"), fast=StateStore("memory:")) as hybrid:
        store: Any = hybrid
        await store.save_planner_state("token", {"a": 1})
        await store.save_memory_state("key", {"b": 2})
        await store.save_planner_event("trace", theirs_event())
        assert await hybrid.durable.load_planner_state("token") is None
        assert await store.load_planner_state("token") == {"a": 1}
        assert await hybrid.fast.load_memory_state("key") == {"b": 2}
        assert await hybrid.fast.list_planner_events("trace") == []
        assert len(await store.list_planner_events("trace")) == 1
        await store.flush()
        assert {name: found.writes for name, found in (await hybrid.health()).items()} == {
            "durable": True,
            "fast": True,
        }
        assert missing_capabilities(store, [*DURABLE, *FAST, "artifact_store"]) == []


async def test_a_hybrid_flushes_both() -> None:
    """The second store is flushed even if the first one raises."""
    flushed = []

    class Lossy(StateStore):
        async def flush(self) -> None:
            flushed.append(self.tenant)
            raise StateNotSaved("save_event", OSError())

    hybrid = HybridStateStore(Lossy("memory:", tenant="durable"), fast=Lossy("memory:", tenant="fast"))
    with pytest.raises(StateNotSaved):
        await hybrid.flush()
    assert flushed == ["fast", "durable"]


def theirs_event() -> Any:
    from penguiflow.planner import PlannerEvent

    return PlannerEvent("finish", 1.0, 1)


def test_a_hybrid_has_the_capabilities_of_its_stores() -> None:
    class Three:
        save_event = load_history = save_remote_binding = None

    hybrid = HybridStateStore(Three(), fast=StateStore("memory:"))
    assert missing_capabilities(hybrid, ["save_event", "save_task", "save_planner_state"]) == ["save_task"]
    assert hybrid.artifact_store is None
    with pytest.raises(TypeError, match="must store pauses and memory"):
        HybridStateStore(StateStore("memory:"), fast=Three())


async def test_every_setting_has_a_variable(tmp_path: Path) -> None:
    store = create_store(
        {
            "KEELBOLT_STATE_URL": "memory:",
            "KEELBOLT_STATE_POLICY": "resilient",
            "KEELBOLT_STATE_SPOOL": str(tmp_path),
            "KEELBOLT_STATE_WRITE_BEHIND": "true",
            "KEELBOLT_STATE_TIMEOUT_SECONDS": "3",
            "KEELBOLT_STATE_PAUSE_SECONDS": "60",
            "KEELBOLT_STATE_RETAIN": "sessions=30d events=1d",
            "KEELBOLT_STATE_SWEEP_EVERY": "never",
        }
    )
    settings = store._settings
    assert (settings["behind"], settings["timeout_seconds"], settings["pause_seconds"]) == (True, 3.0, 60.0)
    assert (settings["retention"].sessions, settings["sweep_every"]) == (30 * 86400.0, None)
    await store.close()
    with pytest.raises(InvalidState, match="KEELBOLT_STATE_WRITE_BEHIND='maybe': must be true or false"):
        create_store({"KEELBOLT_STATE_URL": "memory:", "KEELBOLT_STATE_WRITE_BEHIND": "maybe"})
    with pytest.raises(InvalidState, match="KEELBOLT_STATE_TIMEOUT_SECONDS='soon'"):
        create_store({"KEELBOLT_STATE_URL": "memory:", "KEELBOLT_STATE_TIMEOUT_SECONDS": "soon"})
    owned = create_session_store({"KEELBOLT_STATE_URL": "memory:"})
    assert type(owned).__name__ == "OwnedTasks"


@pytest.mark.parametrize("name", [name for name in dir(StateStore) if name.startswith(("save_", "load_", "list_"))])
def test_methods_are_coroutine_functions(name: str) -> None:
    """Frameworks and mocks check for coroutine functions."""
    method = getattr(StateStore, name)
    assert inspect.iscoroutinefunction(method)
    assert asyncio.iscoroutinefunction(method)
    assert isinstance(getattr(AsyncMock(spec=StateStore), name), AsyncMock)
