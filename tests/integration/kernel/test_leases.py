"""The lease of a worker that is lost again and again leaves nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

from keelbolt.errors import StorageBusy
from keelbolt.kernel import Enqueue
from keelbolt.kernel.sqlite import SQLiteKernel
from keelbolt.leases import Lease

LOSSES = 5


class Unreliable:
    """A store whose heartbeats fail in between, until the lease is lost this many times."""

    def __init__(self, kernel: SQLiteKernel) -> None:
        self._kernel = kernel
        self.answers = True
        self.retired: asyncio.Queue[str] = asyncio.Queue()

    async def heartbeat(self, worker: str, *, lease_seconds: float) -> None:
        if not self.answers:
            raise StorageBusy("the store is busy")
        await self._kernel.heartbeat(worker, lease_seconds=lease_seconds)

    async def retire(self, worker: str) -> int:
        freed = await self._kernel.retire(worker)
        self.retired.put_nowait(worker)
        return freed


async def test_lost_names_are_retired(tmp_path: Path) -> None:
    """Each name of a lease holds a lock file. After a loss, the process holds only that of its new name."""
    async with SQLiteKernel(str(tmp_path / "kernel.db")) as kernel:
        store = Unreliable(kernel)
        lost: list[str] = []
        was_lost = asyncio.Event()

        def lose() -> None:
            lost.append(lease.name)
            store.answers = True
            was_lost.set()

        lease = Lease(store, seconds=0.5, heartbeat=0.05, lost=lose)
        await lease.start()
        await kernel.commit("p", Enqueue("runs", "item"))
        (claim,) = await kernel.claim("runs", lease.name, lease_seconds=600)
        for _ in range(LOSSES):
            store.answers = False
            await asyncio.wait_for(was_lost.wait(), 10)
            was_lost.clear()
            assert await asyncio.wait_for(store.retired.get(), 10) == lost[-1]
        assert len(set(lost)) == LOSSES
        assert (await kernel.stats()).workers == 1
        assert len(list((tmp_path / "kernel.db-workers").iterdir())) == 1
        (again,) = await kernel.claim("runs", lease.name)  # the lost name held it; others need not wait for its lease
        assert again.fence > claim.fence
        await lease.stop()
        assert store.retired.get_nowait() == lease.name
        assert (await kernel.stats()).workers == 0
