"""PostgreSQL at its limits: no connection, no time, a held lock, a full disk. No commit is written partially."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from keelbolt.errors import StorageBusy, StorageFull, StorageUnreachable
from keelbolt.kernel import Append, Collection, Draft, Enqueue, Index, Kernel, Operation, Put, open_storage
from keelbolt.kernel.postgres import PostgresKernel
from keelbolt.kernel.postgres.committer import catalog_lock, locks_of
from keelbolt.testing.launch import make_home, user_for_servers
from keelbolt.testing.postgres import OwnPostgres, own_postgres
from keelbolt.testing.proxy import Proxy
from tests.integration.kernel.postgres_servers import assert_discreet, make_role, url_for

FAMILIES = (Collection("doc"),)
APPEND = Append("log", "s", (Draft("a", b""),))


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as started:
        yield started


@pytest.fixture
def url(server: OwnPostgres) -> Iterator[str]:
    with server.database() as made:
        yield made


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keelbolt.kernel.postgres.connection.LOCK_SECONDS", 0.3)


@asynccontextmanager
async def session(url: str, sql: str, *values: object) -> AsyncIterator[Any]:
    """Another session's transaction that has run this statement and stays open."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(sql, *values)
            yield connection
    finally:
        await connection.close()


async def head(kernel: Kernel) -> int:
    return (await kernel.log_state("p", "log", "s")).head


# ------------------------------------------------------------------------------------------------------ locks and time


@pytest.mark.usefixtures("short_times")
@pytest.mark.parametrize("kind", ["key", "catalog", "row", "table"])
async def test_a_lock_held_by_another_session(url: str, kind: str) -> None:
    """A commit that needs a lock of another session raises StorageBusy in time, writes nothing, and works later."""
    commits: list[Operation] = [APPEND, Put("doc", "a", b"1"), Enqueue("jobs", "a", lane="other")]
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit("p", *commits)
        number = locks_of("keelbolt", [("p", (APPEND,))])[0]
        held: dict[str, tuple[Any, ...]] = {
            "key": ("SELECT pg_advisory_xact_lock($1)", number),
            "catalog": ("SELECT pg_advisory_xact_lock($1)", catalog_lock("keelbolt")),
            "row": ("SELECT FROM keelbolt.work FOR UPDATE",),
            "table": ("LOCK TABLE keelbolt.entry IN ACCESS EXCLUSIVE MODE",),
        }
        async with session(url, *held[kind]):
            began = time.monotonic()
            with pytest.raises(StorageBusy) as caught:
                await kernel.commit("p", *commits)
            assert time.monotonic() - began < 5.0
        assert caught.value.retryable
        assert_discreet(caught.value, url)
        assert await head(kernel) == 1
        record = await kernel.get("p", "doc", "a")
        assert record is not None
        assert record.version == 1
        receipt = await kernel.commit("p", *commits)
        assert receipt.seqs("log", "s") == (2,)


@pytest.mark.usefixtures("short_times")
async def test_claims_and_declarations_do_not_wait_for_ever(url: str) -> None:
    """Calls that bypass the committer also time out on a lock."""
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit("p", Enqueue("jobs", "a"))
        async with session(url, "LOCK TABLE keelbolt.worker IN ACCESS EXCLUSIVE MODE"):
            for call in (kernel.claim("jobs", "w"), kernel.heartbeat("w"), kernel.retire("w")):
                with pytest.raises(StorageBusy):
                    await call
        async with session(url, "SELECT pg_advisory_xact_lock_shared($1)", catalog_lock("keelbolt")):
            with pytest.raises(StorageBusy):
                await kernel.declare(Collection("another"))
        (claim,) = await kernel.claim("jobs", "w")
        await kernel.declare(Collection("another"))
        await kernel.commit("p", claim.complete(), Put("another", "a", b""))


async def test_a_statement_that_takes_too_long(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's statement timeout ends the statement: StorageBusy, and nothing is written."""
    monkeypatch.setattr("keelbolt.kernel.postgres.connection.STATEMENT_SECONDS", 0.3)
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit("p", APPEND)
        async with session(url, "LOCK TABLE keelbolt.entry IN ACCESS EXCLUSIVE MODE"):
            with pytest.raises(StorageBusy):
                await kernel.commit("p", APPEND)
            with pytest.raises(StorageBusy):
                await kernel.read_log("p", "log", "s")
        assert await head(kernel) == 1
        await kernel.commit("p", APPEND)


async def test_checks_and_stats_have_no_statement_timeout(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check`, `stats` and a changed declaration may take longer than the statement timeout of callers."""
    monkeypatch.setattr("keelbolt.kernel.postgres.connection.STATEMENT_SECONDS", 0.5)
    monkeypatch.setattr("keelbolt.kernel.postgres.connection.LATE_SECONDS", 0.1)
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit("p", Put("doc", "a", b"1"))
        async with session(url, "LOCK TABLE keelbolt.record, keelbolt.entry IN ACCESS EXCLUSIVE MODE"):

            async def check() -> int:
                return len([problem async for problem in kernel.check()])

            changed = Collection("doc", fields={"state": str}, indexes=(Index("by_state", ("state",)),))
            slow = asyncio.gather(check(), kernel.declare(changed))
            await asyncio.sleep(1.5)
            assert not slow.done()
        async with asyncio.timeout(10):
            assert (await slow)[0] == 0
        assert (await kernel.stats()).records == {"doc": 1}


@pytest.mark.usefixtures("short_times")
async def test_one_callers_lock_does_not_fail_others(url: str) -> None:
    """While another session locks one key, commits of other keys succeed afterwards, in order."""
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit("p", APPEND)
        number = locks_of("keelbolt", [("p", (APPEND,))])[0]
        async with session(url, "SELECT pg_advisory_xact_lock($1)", number):
            refused = kernel.commit("p", APPEND)
            with pytest.raises(StorageBusy):
                await refused
            await kernel.commit("q", APPEND)
        assert (await kernel.log_state("q", "log", "s")).head == 1


# --------------------------------------------------------------------------------------------------------- connections


async def test_an_exhausted_pool(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All connections of this process are in use: reads raise StorageBusy, and writes still work."""
    monkeypatch.setattr("keelbolt.kernel.postgres.readers.STATEMENT_SECONDS", 0.3)
    async with PostgresKernel(url, declare=FAMILIES, connections=1) as kernel:
        await kernel.commit("p", APPEND)
        async with kernel._readers.reading():
            with pytest.raises(StorageBusy, match="connections") as caught:
                await kernel.get("p", "doc", "a")
            assert_discreet(caught.value, url)
            await kernel.commit("p", APPEND)
        assert await head(kernel) == 2


async def test_many_readers_share_few_connections(url: str) -> None:
    """A thousand concurrent reads wait for each other, and all succeed."""
    async with PostgresKernel(url, declare=FAMILIES, connections=2) as kernel:
        await kernel.commit("p", Put("doc", "a", b"1"))
        records = await asyncio.gather(*(kernel.get("p", "doc", "a") for _ in range(1000)))
        assert {record.body for record in records if record is not None} == {b"1"}
        assert None not in records


async def test_a_server_without_a_free_connection() -> None:
    """Others use all connections: opening and reconnecting raise StorageBusy, and work later."""
    with own_postgres(settings={"max_connections": "12", "superuser_reserved_connections": "3"}) as small:
        role = make_role(small, "NOSUPERUSER")
        with small.database() as owned:
            name = owned.rpartition("/")[2]
            small.execute(f"GRANT CREATE ON DATABASE {name} TO {role[0]}")
            url = url_for(owned, role)
            async with open_storage(url, declare=FAMILIES) as kernel:
                await kernel.commit("p", APPEND)
                small.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
                others = await _all_connections(url)
                try:
                    with pytest.raises(StorageBusy) as caught:
                        async with open_storage(url):
                            pass
                    assert_discreet(caught.value, url)
                    with pytest.raises(StorageBusy):
                        await kernel.commit("p", APPEND)
                finally:
                    for connection in others:
                        await connection.close()
                receipt = await kernel.commit("p", APPEND)
                assert receipt.seqs("log", "s") == (2,)


async def _all_connections(url: str) -> list[Any]:
    connections = []
    for _ in range(50):
        try:
            connections.append(await asyncpg.connect(url))
        except asyncpg.PostgresError:
            break
    return connections


async def test_reads_do_not_hang_on_a_half_open_network(
    server: OwnPostgres, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Responses are lost: reads and health fail after their timeout, and recover with the network."""
    monkeypatch.setattr("keelbolt.kernel.postgres.connection.STATEMENT_SECONDS", 0.5)
    monkeypatch.setattr("keelbolt.kernel.postgres.connection.LATE_SECONDS", 0.5)
    monkeypatch.setattr("keelbolt.kernel.postgres.readers.OUTAGE_SECONDS", 0.5)
    async with Proxy("127.0.0.1", server.port) as proxy, PostgresKernel(proxy.url(url), declare=FAMILIES) as kernel:
        await kernel.commit("p", Put("doc", "a", b"1"))
        assert await kernel.get("p", "doc", "a") is not None
        proxy.swallow("down")
        began = time.monotonic()
        with pytest.raises(StorageUnreachable):
            await kernel.get("p", "doc", "a")
        assert not (await kernel.health()).reads
        assert time.monotonic() - began < 30.0
        proxy.allow()
        assert await kernel.get("p", "doc", "a") is not None


# ---------------------------------------------------------------------------------------------------------- a full disk


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk needs root, to mount a tmpfs")
    user = user_for_servers()
    home = make_home("disk", user)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", home], check=False)
    if mounted.returncode:
        home.rmdir()
        pytest.skip("tmpfs can't be mounted here")
    try:
        if user is not None:
            os.chown(home, user.pw_uid, user.pw_gid)
        yield home
    finally:
        subprocess.run(["umount", "-l", home], check=True)
        home.rmdir()


async def fill(kernel: Kernel) -> None:
    for number in range(400):
        await kernel.commit("p", Put("doc", f"{number}", os.urandom(256 * 1024)), APPEND)


async def test_a_full_disk() -> None:
    """Without space, a commit raises StorageFull and writes nothing, and reads work; with space, writes work again."""
    with small_disk(24) as disk, own_postgres() as own:
        own.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        own.execute("CREATE DATABASE full_one TABLESPACE small")
        url = own.url_of("full_one")
        async with open_storage(url, declare=FAMILIES) as kernel:
            with pytest.raises(StorageFull) as caught:
                await fill(kernel)
            acknowledged = await head(kernel)
            assert caught.value.retryable
            assert_discreet(caught.value, url)
            assert acknowledged > 0
            assert await kernel.get("p", "doc", f"{acknowledged}") is None
            assert await kernel.get("p", "doc", f"{acknowledged - 1}") is not None
            assert (await kernel.health()).reads
            subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            receipt = await kernel.commit("p", Put("doc", "again", b"x"), APPEND)
            assert receipt.seqs("log", "s") == (acknowledged + 1,)
            assert [problem async for problem in kernel.check()] == []
