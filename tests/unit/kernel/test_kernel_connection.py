"""Connections for callers in any thread: closing one while other threads use it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from keelbolt.errors import StorageBroken, StorageClosed
from keelbolt.kernel import Kernel
from keelbolt.kernel.connection import KernelConnection


class Endless:
    """A call that does not end by itself."""

    def __init__(self) -> None:
        self.begun = threading.Event()

    async def __call__(self, _kernel: Kernel) -> None:
        self.begun.set()
        await asyncio.get_running_loop().create_future()


async def test_a_call_in_use_raises_when_another_thread_closes_the_connection(tmp_path: Path) -> None:
    connection = KernelConnection(f"sqlite:///{tmp_path}/file.db", ())
    sync, other = Endless(), Endless()
    calls = [
        asyncio.create_task(asyncio.to_thread(connection.call_sync, sync)),
        asyncio.create_task(connection.call(other)),
    ]
    for each in (sync, other):
        assert await asyncio.to_thread(each.begun.wait, 30)
    await connection.aclose()
    async with asyncio.timeout(30):
        for call in calls:
            with pytest.raises(StorageClosed):
                await call
    with pytest.raises(StorageClosed):
        connection.call_sync(sync)


async def test_a_late_failure_of_a_broken_kernel_does_not_close_the_next_one(tmp_path: Path) -> None:
    """Two calls find the storage broken; a third one opens it again before the second one reports it."""
    connection = KernelConnection(f"sqlite:///{tmp_path}/file.db", ())
    begun, late = threading.Event(), threading.Event()
    used: list[Kernel] = []

    async def fails(_kernel: Kernel) -> None:
        raise StorageBroken

    async def fails_late(_kernel: Kernel) -> None:
        begun.set()
        await asyncio.to_thread(late.wait)
        raise StorageBroken

    async def works(kernel: Kernel) -> None:
        used.append(kernel)

    slow = asyncio.create_task(connection.call(fails_late))
    assert await asyncio.to_thread(begun.wait, 30)
    with pytest.raises(StorageBroken):
        await connection.call(fails)
    await connection.call(works)
    late.set()
    with pytest.raises(StorageBroken):
        await slow
    await connection.call(works)
    assert used[0] is used[1]
    await connection.aclose()
