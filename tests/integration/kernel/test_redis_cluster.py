"""The Redis and Valkey engine on a cluster: partitions on different servers, and slots that move."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from redis.crc import key_slot

from keelbolt.conformance.kernel import KernelPlace, KernelSubject, validate
from keelbolt.errors import BlobNotFound, StorageUnavailable
from keelbolt.kernel import Append, Draft, Enqueue, Kernel, Put, open_storage
from keelbolt.kernel.records import Collection
from keelbolt.testing.valkey import OwnValkey, valkey_cluster

THINGS = Collection("things", counters=((),))
# Laws that take other code paths in a cluster: the registry is in another slot, and no call spans two partitions.
GROUPS = ("queues", "values", "persistence")


@pytest.fixture(scope="module")
def servers() -> Iterator[list[OwnValkey]]:
    with valkey_cluster() as servers:
        yield servers


@dataclass(frozen=True)
class Make:
    url: str

    def __call__(self, place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
        return open_storage(f"{self.url}?namespace={place.name}", declare=declare)


@pytest.mark.timeout(600)
async def test_a_cluster_obeys_the_laws(servers: list[OwnValkey], full: bool) -> None:
    subject = KernelSubject("cluster", Make(servers[0].url), persistent=True, shared=True)
    report = await validate(subject, only=() if full else GROUPS)
    assert not report.failed, str(report)


async def test_partitions_lie_on_all_servers(servers: list[OwnValkey]) -> None:
    async with open_storage(f"{servers[1].url}?namespace=spread", declare=[THINGS]) as kernel:
        names = [f"partition {n}" for n in range(30)]
        await asyncio.gather(*(kernel.commit(name, Put("things", "a", name.encode())) for name in names))
        assert sorted(await kernel.partitions()) == sorted(names)
        for server in servers:
            assert server.execute("DBSIZE") > 0
        for name in names:
            record = await kernel.get(name, "things", "a")
            assert record is not None
            assert record.body == name.encode()
        assert (await kernel.stats()).records["things"] == 30
        assert [problem async for problem in kernel.check()] == []


async def test_work_is_found_although_the_registry_was_not_updated(servers: list[OwnValkey]) -> None:
    """If a writer died before it updated the registry, claiming processes repair it."""
    async with open_storage(f"{servers[0].url}?namespace=repair") as kernel:
        await kernel.commit("p", Enqueue("runs", "a"))
        for server in servers:
            if key_slot(b"repair:{%}:") in slots(server):
                server.execute("DEL", "repair:{%}:ready/runs")
        claims = await kernel.claim("runs", "w")
        assert [claim.key for claim in claims] == ["a"]


async def test_a_slot_that_moved_is_followed(servers: list[OwnValkey]) -> None:
    async with open_storage(f"{servers[0].url}?namespace=moving") as kernel:
        await kernel.commit("p0", Append("log", "s", (Draft("note", b"0"),)))
        held = slots(servers[0])
        places = ((f"p{n}", key_slot(b"moving:{p%d}:" % n)) for n in range(1, 1000))
        partition, slot = next(
            place
            for place in places
            if place[1] in held and servers[0].execute("CLUSTER", "COUNTKEYSINSLOT", place[1]) == 0
        )
        target = servers[1].execute("CLUSTER", "MYID").decode()
        for server in (servers[1], servers[0], servers[2]):
            server.execute("CLUSTER", "SETSLOT", slot, "NODE", target)
        for number in range(3):
            receipt = await kernel.commit(partition, Append("log", "s", (Draft("note", b"%d" % number),)))
            assert receipt.seqs("log", "s") == (number + 1,)
        assert (await kernel.log_state(partition, "log", "s")).head == 3


async def test_a_plain_read_follows_a_slot_that_moved(servers: list[OwnValkey]) -> None:
    """A process may detect the move by a command on one key instead of a function call."""
    async with open_storage(f"{servers[0].url}?namespace=reading&timeout=3") as kernel:
        held = slots(servers[0])
        places = ((f"p{n}", key_slot(b"reading:{p%d}:" % n)) for n in range(1, 1000))
        partition, slot = next(
            place
            for place in places
            if place[1] in held and servers[0].execute("CLUSTER", "COUNTKEYSINSLOT", place[1]) == 0
        )
        target = servers[1].execute("CLUSTER", "MYID").decode()
        for server in (servers[1], servers[0], servers[2]):
            server.execute("CLUSTER", "SETSLOT", slot, "NODE", target)
        assert (await kernel.log_state(partition, "log", "s")).head == 0
        with pytest.raises(BlobNotFound):
            await kernel.open_blob(partition, "0" * 64)


async def test_a_server_that_is_down_is_an_error_and_the_others_work(servers: list[OwnValkey]) -> None:
    async with open_storage(f"{servers[0].url}?namespace=down&timeout=1") as kernel:
        there = next(f"p{n}" for n in range(1000) if key_slot(b"down:{p%d}:" % n) in slots(servers[0]))
        gone = next(f"p{n}" for n in range(1000) if key_slot(b"down:{p%d}:" % n) in slots(servers[2]))
        for partition in (there, gone):
            await kernel.commit(partition, Append("log", "s", (Draft("note", b""),)))
        servers[2].kill()
        with pytest.raises(StorageUnavailable):
            await kernel.commit(gone, Append("log", "s", (Draft("note", b""),)))
        await kernel.commit(there, Append("log", "s", (Draft("note", b""),)))
        servers[2].start()
        for _ in range(100):
            ends = await asyncio.gather(
                kernel.commit(gone, Append("log", "s", (Draft("note", b""),))), return_exceptions=True
            )
            if not isinstance(ends[0], Exception):
                break
            await asyncio.sleep(0.1)
        assert (await kernel.log_state(gone, "log", "s")).head >= 2


def slots(server: OwnValkey) -> range:
    """Return the first range of slots of a server."""
    for line in server.execute("CLUSTER", "NODES").decode().splitlines():
        words = line.split()
        if "myself" in words[2]:
            first, _, last = words[8].partition("-")
            return range(int(first), int(last) + 1)
    raise AssertionError
