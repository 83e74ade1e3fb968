"""A process releases every claim that it does not run, also after an outage of the storage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from keelbolt.errors import StorageUnavailable
from keelbolt.kernel import Enqueue, Kernel
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.leases import Lease
from keelbolt.state.families import FAMILIES, RUNS
from keelbolt.state.sessions.process import SessionProcess


class OutageHost:
    """Runs calls on a kernel, unless the storage is away."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.away = False
        self.left: int | None = None  # calls before the storage goes away
        self.slow = asyncio.Event()
        self.slow.set()

    async def ask(self, function: Callable[[Kernel], Awaitable[Any]]) -> Any:
        if self.away or self.left == 0:
            raise StorageUnavailable
        if self.left is not None:
            self.left -= 1
        result = await function(self._kernel)
        await self.slow.wait()
        return result


async def test_all_claims_are_released_after_an_outage() -> None:
    keys = ("a", "b", "c")
    async with MemoryKernel() as kernel:
        await kernel.commit("p", *(Enqueue(RUNS, key) for key in keys))
        host = OutageHost(kernel)
        process = SessionProcess(host, lease_seconds=15.0)  # type: ignore[arg-type]
        process._unwanted.extend(await kernel.claim(RUNS, "worker", limit=3))
        host.away = True
        with pytest.raises(StorageUnavailable):
            await process._give_back()
        host.away = False
        await process._give_back()
        items = [await kernel.work("p", RUNS, key) for key in keys]
        assert [item.state for item in items if item is not None] == ["waiting"] * 3


@pytest.mark.parametrize("cancelled", [False, True])
async def test_claims_that_are_not_passed_on_are_released(*, cancelled: bool) -> None:
    """The storage goes away after the claim and before the first task is read; or the caller is cancelled."""
    keys = ("a", "b", "c")
    async with MemoryKernel() as kernel:
        await kernel.declare(*FAMILIES)
        await kernel.commit("p", *(Enqueue(RUNS, key) for key in keys))
        host = OutageHost(kernel)
        process = SessionProcess(host, lease_seconds=15.0)  # type: ignore[arg-type]
        process._lease = Lease(process, seconds=15.0, heartbeat=5.0, lost=process._lost)
        if cancelled:
            host.slow.clear()
            claiming = asyncio.ensure_future(process._claim())
            await asyncio.sleep(0.01)
            claiming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claiming
            host.slow.set()
            await asyncio.sleep(0.01)
        else:
            host.left = 1
            with pytest.raises(StorageUnavailable):
                await process._claim()
            host.left = None
        await process._give_back()
        items = [await kernel.work("p", RUNS, key) for key in keys]
        assert [item.state for item in items if item is not None] == ["waiting"] * 3
