"""A Redis store of an older format opens with all its data."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

from keelbolt.errors import SchemaTooNew
from keelbolt.kernel import Append, Draft, Kernel, Trim, open_storage
from keelbolt.kernel.redis.operations import unpacked
from keelbolt.testing.valkey import OwnValkey, own_valkey

LOGS = 450  # more than one call of the conversion
LONG = 350  # entries; more than one page of it


@pytest.fixture(scope="module")
def server() -> Iterator[OwnValkey]:
    with own_valkey() as started:
        yield started


async def fill(kernel: Kernel) -> None:
    await asyncio.gather(
        *(
            kernel.commit(f"p{number % 3}", Append("log", f"s{number}", (Draft("kind", b"%d" % number),)))
            for number in range(LOGS)
        )
    )
    for number in range(LONG):
        await kernel.commit(
            "p0", Append("log", "long/{name}", (Draft("kind", b"x\n%d" % number, dedupe=f"once {number}"),))
        )
    await kernel.commit("p0", Trim("log", "long/{name}", 20))


async def content(kernel: Kernel) -> list[object]:
    """Return all readable data of the logs."""
    short = [await kernel.read_log(f"p{number % 3}", "log", f"s{number}") for number in range(LOGS)]
    pages = [
        await kernel.read_log("p0", "log", "long/{name}", after=after, limit=100) for after in range(20, LONG, 100)
    ]
    back = await kernel.read_log("p0", "log", "long/{name}", backward=True, limit=30)
    dedupes = [await kernel.seq_of("p0", "log", "long/{name}", f"once {number}") for number in range(LONG)]
    return [short, pages, back, dedupes]


def make_format_1(url: str) -> None:
    """Store the logs as streams of the server, as format 1 did."""
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(match="keelbolt:{*}:l/*", count=1000):
            entries = client.lrange(key, 0, -1)
            client.delete(key)
            for seq, at, kind, data, dedupe, crc in unpacked(b"".join(entries)):
                row = {"k": kind, "d": data, "a": at, "c": crc} | ({"u": dedupe} if dedupe else {})
                client.xadd(key, row, id=f"{seq}-0")
        client.set("keelbolt:{%}:format", 1)


async def test_streams_become_lists(server: OwnValkey) -> None:
    """Opening a store of format 1 converts its logs; readers see the same data, and appends continue."""
    url = server.create_database()
    async with open_storage(url) as kernel:
        await fill(kernel)
        before = await content(kernel)
    await asyncio.to_thread(make_format_1, url)
    async with open_storage(url) as first, open_storage(url) as second:
        assert await content(first) == before
        await second.commit(
            "p0", Append("log", "long/{name}", (Draft("kind", b"", dedupe="once 349"), Draft("kind", b"")))
        )
        assert (await first.log_state("p0", "log", "long/{name}")).head == LONG + 1
        assert [problem async for problem in first.check()] == []
    assert server.execute("GET", "keelbolt:{%}:format", url=url) == b"2"


async def test_an_interrupted_conversion_continues(server: OwnValkey) -> None:
    """The logs are already lists, and the format is still the old one."""
    url = server.create_database()
    async with open_storage(url) as kernel:
        await fill(kernel)
        before = await content(kernel)
    await asyncio.to_thread(make_format_1, url)
    async with open_storage(url):
        pass
    server.execute("SET", "keelbolt:{%}:format", "1", url=url)
    kernels = [open_storage(url) for _ in range(3)]
    await asyncio.gather(*(kernel.__aenter__() for kernel in kernels))
    for kernel in kernels:
        assert await content(kernel) == before
        await kernel.__aexit__(None, None, None)


async def test_a_newer_format_is_refused(server: OwnValkey) -> None:
    url = server.create_database()
    server.execute("SET", "keelbolt:{%}:format", "3", url=url)
    with pytest.raises(SchemaTooNew):
        async with open_storage(url):
            pass


async def test_a_small_log_takes_little_memory(server: OwnValkey) -> None:
    """A log of a few short entries takes hundreds of bytes, not the 4 KiB that a stream of the server reserves."""
    url = server.create_database()
    async with open_storage(url) as kernel:
        await kernel.commit("p", Append("log", "s", tuple(Draft("kind", b"x" * 100) for _ in range(5))))
        assert server.execute("MEMORY", "USAGE", "keelbolt:{p}:l/log/s", url=url) < 1200
