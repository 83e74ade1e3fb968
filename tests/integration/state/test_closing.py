"""Closing a store in use: each call is stored or raises, and no caller waits forever."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from keelbolt.errors import StateNotLoaded, StateNotSaved, StorageClosed
from keelbolt.kernel import Kernel
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.state import StateStore
from keelbolt.state.engine.thread import ThreadHost
from keelbolt.state.retention import StateSweeper
from tests.integration.state.things import event


@pytest.fixture
async def kernel() -> AsyncIterator[MemoryKernel]:
    async with MemoryKernel() as kernel:
        yield kernel


def host_of(store: StateStore) -> ThreadHost:
    assert isinstance(store.host.host, ThreadHost)
    return store.host.host


async def test_a_save_after_the_last_drain_raises(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread checks that the store is open; the store is closed before the thread continues."""
    store = StateStore(file_url)
    await store.save_event(event())
    host = host_of(store)
    loop = host._started()
    await store.close()
    monkeypatch.setattr(host, "_started", lambda: loop)
    with pytest.raises(StateNotSaved, match="closed"):
        await asyncio.wait_for(store.save_planner_state("token", {}), 30)
    for load in (store.load_history, store.load_planner_state):
        with pytest.raises(StateNotLoaded, match="closed"):
            await load("trace")


async def test_a_save_after_the_close_raises_on_a_given_kernel(kernel: MemoryKernel) -> None:
    store = StateStore(kernel)
    await store.save_event(event())
    await store.close()
    with pytest.raises(StateNotSaved, match="closed"):
        await asyncio.wait_for(store.save_planner_state("token", {}), 30)


async def test_a_waiting_caller_gets_an_error_at_the_close(file_url: str) -> None:
    """The error is an ordinary failure, not a cancellation of the caller."""
    store = StateStore(file_url)
    asked = threading.Event()

    async def never(_kernel: Any) -> None:
        asked.set()
        await asyncio.get_running_loop().create_future()

    waiting = asyncio.create_task(store.host.ask(never))
    await asyncio.to_thread(asked.wait, 30)
    await asyncio.gather(store.close(), store.close(), store.close())
    with pytest.raises(StorageClosed):
        await waiting


async def test_saves_during_a_close_are_stored_or_raise(file_url: str) -> None:
    store = StateStore(file_url)
    kept: list[int] = []
    busy = asyncio.Event()

    async def save() -> None:
        while True:
            await store.save_memory_state("key", {"n": len(kept)})
            kept.append(len(kept))
            if len(kept) == 20:
                busy.set()

    saving = asyncio.create_task(save())
    await busy.wait()
    await store.close()
    with pytest.raises(StateNotSaved, match="closed"):
        await asyncio.wait_for(saving, 30)
    async with StateStore(file_url) as later:
        state = await later.load_memory_state("key")
        assert state is not None
        assert state["n"] in (kept[-1], kept[-1] + 1)


async def test_artifacts_work_after_their_store_object_is_dropped(file_url: str) -> None:
    store = StateStore(file_url)
    await store.save_event(event())
    artifacts = store.artifact_store
    del store
    gc.collect()
    ref = await artifacts.put_bytes(b"kept")
    assert await artifacts.get(ref.id) == b"kept"


async def test_stores_of_one_url_share_an_engine(shared_url: str) -> None:
    """Stores for 120 tenants use one thread and the connections of one store; each is closed separately."""
    earlier = set(threading.enumerate())
    first = StateStore(shared_url)
    stores = [first, *(first.for_tenant(f"tenant-{number}") for number in range(60))]
    stores += [StateStore(shared_url, tenant=f"other-{number}") for number in range(60)]
    await asyncio.gather(*(store.save_memory_state("key", {"tenant": store.tenant}) for store in stores))
    threads = [each for each in set(threading.enumerate()) - earlier if each.name == "keelbolt-state"]
    assert len(threads) == 1
    assert [await store.load_memory_state("key") for store in stores] == [{"tenant": store.tenant} for store in stores]
    await first.close()
    with pytest.raises(StateNotSaved, match="closed"):
        await first.save_event(event())
    with pytest.raises(StorageClosed):
        first.for_tenant("late")
    assert await stores[1].load_memory_state("key") == {"tenant": "tenant-0"}
    for store in stores[1:]:
        await store.close()
    threads[0].join(30)
    assert not threads[0].is_alive()


async def test_tenants_on_one_kernel_are_isolated(kernel: MemoryKernel) -> None:
    async with StateStore(kernel) as store, store.for_tenant("acme") as acme:
        await acme.save_memory_state("key", {"a": 1})
        assert await store.load_memory_state("key") is None
        assert await acme.for_tenant("default").load_memory_state("key") is None
        assert await StateStore(kernel, tenant="acme").load_memory_state("key") == {"a": 1}


@pytest.mark.parametrize("given", [True, False])
async def test_neither_flush_nor_close_waits_for_a_sweep(
    kernel: MemoryKernel, file_url: str, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep of a large store takes minutes; close cancels it."""
    ends = []

    async def sweep(_self: StateSweeper, _kernel: Kernel) -> None:
        try:
            await asyncio.sleep(300)
        finally:
            ends.append("cancelled")

    monkeypatch.setattr(StateSweeper, "sweep", sweep)
    store = StateStore(kernel if given else file_url, sweep_every=0.001)
    await asyncio.sleep(0.01)
    await store.save_event(event())
    async with asyncio.timeout(60):
        await store.flush()
        assert ends == []
        await store.close()
    assert ends == ["cancelled"]
