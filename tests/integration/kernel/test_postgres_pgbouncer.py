"""PgBouncer in transaction mode, where each transaction may use another backend: the kernel detects it and works."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator, Sequence

import pytest

from keelbolt.conformance.kernel import KernelPlace, KernelSubject, validate
from keelbolt.errors import StorageUnreachable
from keelbolt.kernel import Append, Collection, Draft, Enqueue, Insert, Kernel, Put, Query, open_storage
from keelbolt.testing.postgres import OwnPostgres, own_postgres
from tests.integration.kernel.postgres_servers import pgbouncer, pgbouncer_of

BACKENDS = 3
FAMILIES = (Collection("doc", fields={"state": str}, counters=((), ("state",))),)
URL_VARIABLE = "KEELBOLT_TEST_PGBOUNCER_URL"  # for the processes that conformance laws start

pytestmark = pytest.mark.skipif(pgbouncer() is None, reason="pgbouncer is not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as started:
        yield started


@pytest.fixture(scope="module")
def bouncer(server: OwnPostgres) -> Iterator[str]:
    with pgbouncer_of(server, backends=BACKENDS) as url:
        yield url


@pytest.fixture
def direct(server: OwnPostgres) -> Iterator[str]:
    with server.database() as made:
        yield made


@pytest.fixture
def url(direct: str, bouncer: str) -> str:
    """The database's URL through PgBouncer."""
    return f"{bouncer}/{direct.rpartition('/')[2]}"


async def test_it_is_detected(url: str, direct: str) -> None:
    """Through PgBouncer the kernel polls; on a direct connection it listens."""
    async with open_storage(url) as behind, open_storage(direct) as beside:
        assert "polling" in (await behind.health()).detail
        assert (await behind.stats()).engine["pooled"] == "yes"
        assert "listening" in (await beside.health()).detail


async def test_settings_reach_each_transaction(url: str, direct: str, server: OwnPostgres) -> None:
    """Durable applies although no setting survives its transaction, whatever the server's default."""
    server.execute(f"ALTER DATABASE {direct.rpartition('/')[2]} SET synchronous_commit = off")
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit("p", Put("doc", "a", b"1"))
        async with kernel._readers.writing() as connection:  # type: ignore[attr-defined]
            assert await connection.fetchval("SHOW synchronous_commit") == "on"
            assert await connection.fetchval("SHOW lock_timeout") == "10s"
        assert "synchronous_commit = on" in kernel._committer._begin  # type: ignore[attr-defined]


async def test_tails_and_queues_wake_between_processes_without_listen(url: str) -> None:
    """Kernels that share no connection see each other's commits by the poll, every entry once and in order."""
    async with open_storage(url) as one, open_storage(url) as other:
        tail = other.tail("p", "log", "s", after=0)
        seen = []
        for number in range(1, 6):
            await one.commit("p", Append("log", "s", (Draft("a", str(number).encode()),)))
            async with asyncio.timeout(10):
                seen.append((await anext(tail)).seq)
        assert seen == [1, 2, 3, 4, 5]
        await tail.aclose()  # type: ignore[attr-defined]


async def test_many_clients_never_get_each_others_responses(url: str) -> None:
    """Far more clients than backends, each with a different request: every response belongs to its request."""
    kernels = [open_storage(url, declare=FAMILIES) for _ in range(4)]
    for kernel in kernels:
        await kernel.open()
    try:
        keys = [f"{number:03}" for number in range(40)]
        await kernels[0].commit("p", *(Insert("doc", key, key.encode(), {"state": key}) for key in keys))
        dice = random.Random(1)

        async def ask(kernel: Kernel, number: int) -> None:
            key = dice.choice(keys)
            match number % 4:
                case 0:
                    record = await kernel.get("p", "doc", key)
                    assert record is not None
                    assert record.body == key.encode()
                case 1:
                    assert (await kernel.count("p", Query("doc", {"state": key}))).value == 1
                case 2:
                    many = await kernel.get_many("p", "doc", [key, "none"])
                    assert [record and record.key for record in many] == [key, None]
                case _:
                    await kernel.commit("p", Append("log", key, (Draft("a", key.encode()),)))
                    page = await kernel.read_log("p", "log", key)
                    assert {entry.data for entry in page.entries} == {key.encode()}

        await asyncio.gather(*(ask(kernels[number % 4], number // 4) for number in range(1200)))
    finally:
        for kernel in kernels:
            await kernel.close()


async def test_work_is_claimed_once(url: str) -> None:
    """With several workers behind PgBouncer, each item has one holder and is done once."""
    async with open_storage(url) as one, open_storage(url) as other:
        await one.commit("p", *(Enqueue("jobs", f"{number}") for number in range(60)))
        done: list[str] = []

        async def work(kernel: Kernel, name: str) -> None:
            while claims := await kernel.claim("jobs", name, limit=3):
                for claim in claims:
                    await kernel.commit("p", claim.complete(), Append("done", "all", (Draft("a", b""),)))
                    done.append(claim.key)

        await asyncio.gather(*(work(kernel, f"w{number}") for number, kernel in enumerate((one, other) * 2)))
        assert sorted(done) == sorted(f"{number}" for number in range(60))
        assert (await one.log_state("p", "done", "all")).head == 60


async def test_an_ended_pgbouncer_is_an_outage(
    server: OwnPostgres, direct: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PgBouncer ends while the server runs: callers get StorageUnreachable."""
    monkeypatch.setattr("keelbolt.kernel.postgres.committer.OUTAGE_SECONDS", 0.5)
    monkeypatch.setattr("keelbolt.kernel.postgres.readers.OUTAGE_SECONDS", 0.5)
    with pgbouncer_of(server) as own:
        kernel = open_storage(f"{own}/{direct.rpartition('/')[2]}", declare=FAMILIES)
        await kernel.open()
        await kernel.commit("p", Put("doc", "a", b"1"))
    try:
        with pytest.raises(StorageUnreachable):
            await kernel.commit("p", Put("doc", "a", b"2"))
        with pytest.raises(StorageUnreachable):
            await kernel.get("p", "doc", "a")
    finally:
        await kernel.close()


def make(place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
    return open_storage(f"{os.environ[URL_VARIABLE]}?schema={place.name}", declare=declare)


@pytest.mark.parametrize("group", ["commit", "tail", "work", "persistence"])
async def test_the_laws_hold(url: str, monkeypatch: pytest.MonkeyPatch, group: str) -> None:
    """The test runs whole groups of the conformance suite, each law in a schema of its own."""
    monkeypatch.setenv(URL_VARIABLE, url)
    report = await validate(KernelSubject("PgBouncer", make, persistent=True, shared=True), only=[group])
    assert report.ok, str(report)
    assert report.passed
