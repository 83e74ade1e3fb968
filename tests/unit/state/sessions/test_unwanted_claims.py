"""A process releases every claim that it does not run, also after an outage of the storage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from keelbolt.errors import StorageUnavailable
from keelbolt.kernel import Enqueue, Kernel
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.state.families import RUNS
from keelbolt.state.sessions.process import SessionProcess


class OutageHost:
    """Runs calls on a kernel, unless the storage is away."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.away = False

    async def ask(self, function: Callable[[Kernel], Awaitable[Any]]) -> Any:
        if self.away:
            raise StorageUnavailable
        return await function(self._kernel)


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
