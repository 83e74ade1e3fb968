"""A Redis or Valkey that dies while it is moved: the mark is as durable as the data."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from keelbolt.errors import CommitInDoubt, StorageMoved, StorageUnavailable
from keelbolt.kernel import Append, Collection, Draft, Insert, Kernel, Put, open_storage
from keelbolt.kernel.copies import copy_storage
from keelbolt.kernel.transfer.copy import CopyProgress
from keelbolt.testing.valkey import own_valkey

PLAIN = Collection("plain")
MOMENTS = (("copy", "record"), ("copy", "entry"), ("verify", "record"))


async def write(kernel: Kernel, name: int, acknowledged: dict[str, bytes]) -> int:
    """Write until the storage has moved; commits in doubt are repeated with the same dedupe key."""
    number = 0
    while True:
        key, body = f"{name}-{number % 20}", str(number).encode()
        entry = Append("log", f"w{name}", (Draft("n", body, dedupe=str(number)),))
        try:
            await kernel.commit(f"p{name}", Put("plain", key, body), entry)
        except StorageMoved:
            return number
        except (StorageUnavailable, CommitInDoubt):
            await asyncio.sleep(0.01)
        else:
            acknowledged[f"p{name}/{key}"] = body
            number += 1
            await asyncio.sleep(0.002)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_nothing_is_lost_when_the_server_dies_during_a_move(tmp_path: Path, fsync: str) -> None:
    acknowledged: dict[str, bytes] = {}
    with own_valkey(settings={"appendfsync": fsync}) as server:
        left = list(MOMENTS)

        def kill(progress: CopyProgress) -> None:
            if progress.done and (progress.phase, progress.table) in left:
                left.remove((progress.phase, progress.table))
                server.kill()
                server.start()

        async with (
            open_storage(server.url, declare=[PLAIN]) as one,
            open_storage(server.url, declare=[PLAIN]) as user,
            open_storage(f"sqlite:///{tmp_path}/a.db") as other,
        ):
            for number in range(10):
                await one.commit("p", *(Insert("plain", f"{number}-{at}", b"x" * 100) for at in range(300)))
                await one.commit("p", Append("log", "s", (Draft("x", b"y" * 100),) * 300))
            writers = [asyncio.ensure_future(write(user, name, acknowledged)) for name in range(3)]
            while len(acknowledged) < 30:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await copy_storage(one, other, tell=kill)
            counts = await asyncio.gather(*writers)
            assert left == []
            assert sum(counts) >= 30
            for name, count in enumerate(counts):
                page = await other.read_log(f"p{name}", "log", f"w{name}", limit=10_000)
                found = [int(entry.data) for entry in page.entries]
                assert found in (list(range(count)), list(range(count + 1)))  # the last one may be in doubt
            for place, body in acknowledged.items():
                partition, key = place.split("/")
                record = await other.get(partition, "plain", key)
                assert record is not None
                assert record.body == body
            assert (await other.stats()).records == (await one.stats()).records
            assert [problem async for problem in other.check()] == []
