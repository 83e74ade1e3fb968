"""Copies out of and into a cluster: the mark of every slot, and partitions that are created during the copy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.crc import key_slot

from keelbolt.errors import StorageFilling, StorageMoved, StoragePaused
from keelbolt.kernel import Append, Collection, Draft, Enqueue, Kernel, Put, new_id, open_storage
from keelbolt.kernel.base_kernel import BaseKernel
from keelbolt.kernel.copies import backup_storage, copy_storage, restore_storage
from keelbolt.kernel.transfer.copy import CopyProgress
from keelbolt.testing.valkey import OwnValkey, valkey_cluster
from tests.integration.kernel.whole_store import fill, seen

PLAIN = Collection("plain")


@pytest.fixture(scope="module")
def cluster() -> Iterator[OwnValkey]:
    with valkey_cluster() as servers:
        yield servers[0]


def new(server: OwnValkey) -> str:
    return f"{server.url}?namespace=copy-{new_id()}"


async def problems(kernel: Kernel) -> list[str]:
    return [f"{problem.where}: {problem.what}" async for problem in kernel.check()]


class Stop(Exception):
    pass


async def test_a_store_is_copied_into_a_cluster_and_back(tmp_path: Path, cluster: OwnValkey) -> None:
    url = new(cluster)
    async with open_storage(f"sqlite:///{tmp_path}/a.db") as one, open_storage(url) as other:
        await fill(one)

        def stop(progress: CopyProgress) -> None:
            if progress.phase == "copy" and progress.table == "entry" and progress.done:
                raise Stop

        with pytest.raises(Stop):
            await copy_storage(one, other, tell=stop)
        for partition in ("p", "q", "r", "s"):  # on all servers
            with pytest.raises(StorageFilling):
                await other.commit(partition, Enqueue("jobs", "a"))
        with pytest.raises(StorageFilling):
            await other.claim("jobs", "w")
        assert (await copy_storage(one, other)).resumed
        assert await seen(other) == await seen(one)
        assert await problems(other) == []
        (claim,) = await other.claim("jobs", "new worker")
        held = await one.work("acme/bob", "side", "held")
        assert held is not None
        assert claim.fence > held.fence
        await other.commit(claim.partition, claim.release(ready_in=0.0))
        async with open_storage(f"sqlite:///{tmp_path}/b.db") as third:
            await copy_storage(other, third, keep_source=True)
            assert await seen(third) == await seen(other)
        await backup_storage(other, tmp_path / "backup")
        await restore_storage(tmp_path / "backup", f"sqlite:///{tmp_path}/c.db")
        async with open_storage(f"sqlite:///{tmp_path}/c.db") as fourth:
            assert await seen(fourth) == await seen(other)


async def test_nothing_acknowledged_is_lost_by_a_move_from_a_cluster(tmp_path: Path, cluster: OwnValkey) -> None:
    """Each commit has its own partition, most of them new: on every server, in unused slots."""
    url = new(cluster)
    acknowledged: list[str] = []

    async def write(kernel: Kernel, name: int) -> None:
        number = 0
        while True:
            partition = f"{name}/{number}"
            try:
                await kernel.commit(partition, Put("plain", "a", b"x"), Append("log", "s", (Draft("n", b""),)))
            except StoragePaused:
                await asyncio.sleep(0.02)
            except StorageMoved:
                return
            else:
                acknowledged.append(partition)
                number += 1
                await asyncio.sleep(0.005)

    async with (
        open_storage(url, declare=[PLAIN]) as one,
        open_storage(url, declare=[PLAIN]) as user,
        open_storage(f"sqlite:///{tmp_path}/a.db") as other,
    ):
        await fill(one)
        writers = [asyncio.ensure_future(write(user, name)) for name in range(3)]
        await asyncio.sleep(0.3)
        await copy_storage(one, other)
        await asyncio.gather(*writers)
        assert len(acknowledged) > 30
        assert len({key_slot(partition.encode()) for partition in acknowledged}) > 30
        for partition in acknowledged:
            assert await other.get(partition, "plain", "a") is not None
            assert (await other.log_state(partition, "log", "s")).head == 1
        assert await problems(other) == []
        assert await seen(other) == await seen(one)


async def test_a_mark_applies_to_every_slot(cluster: OwnValkey) -> None:
    async with open_storage(new(cluster), declare=[PLAIN]) as one:
        assert isinstance(one, BaseKernel)
        transfer = one.transfer()
        names = [f"partition {n}" for n in range(30)]
        for name in names:
            await one.commit(name, Put("plain", "a", b""))
        await transfer.set_mark("moved", "a copy")
        for name in (*names, "never seen before"):
            with pytest.raises(StorageMoved):
                await one.commit(name, Put("plain", "a", b""))
        with pytest.raises(StorageMoved):
            await one.claim("jobs", "w")
        with pytest.raises(StorageMoved):
            await one.sweep()
        assert not (await one.health()).writes
        await transfer.set_mark(None, "a copy", if_held=True)
        await one.commit("never seen before", Put("plain", "a", b""))
