"""The Redis and Valkey engine on servers that are misconfigured, restarted, killed, disconnected, full, or replaced."""

from __future__ import annotations

import asyncio
import random
import sys
import time
import warnings
from collections.abc import AsyncIterator, Iterator

import pytest

from keelbolt.errors import (
    CannotOpen,
    CommitInDoubt,
    InvalidValue,
    StorageCorrupt,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
    UnknownScheme,
)
from keelbolt.kernel import Append, Collection, Delete, Draft, Enqueue, Kernel, Put, Query, open_storage
from keelbolt.kernel.records import Index
from keelbolt.kernel.redis import RedisKernel, inspect
from keelbolt.kernel.redis.servers import RedisServers
from keelbolt.testing.proxy import Direction, Proxy
from keelbolt.testing.valkey import OwnValkey, own_valkey

P = "p"
THINGS = Collection("things", fields={"rank": int}, indexes=(Index("by_rank", (), "rank"),), counters=((),))


@pytest.fixture(scope="module")
def always() -> Iterator[OwnValkey]:
    with own_valkey() as server:
        yield server


@pytest.fixture
def own() -> Iterator[OwnValkey]:
    with own_valkey() as server:
        yield server


def opened(server: OwnValkey, options: str = "", url: str | None = None) -> Kernel:
    return open_storage(f"{url or server.url}?timeout=5{options}", declare=[THINGS])


def note(number: int) -> Append:
    return Append("log", "s", (Draft("note", b"%d" % number),))


async def logged(kernel: Kernel) -> list[int]:
    return [int(entry.data) for entry in (await kernel.read_log(P, "log", "s", limit=10_000)).entries]


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"maxmemory-policy": "allkeys-lru"}, "noeviction"),
        ({"maxmemory-policy": "volatile-ttl"}, "noeviction"),
        ({"appendonly": "no"}, "appendonly yes"),
    ],
)
async def test_a_server_that_may_lose_data_is_refused_unless_relaxed(settings: dict[str, str], complaint: str) -> None:
    with own_valkey(settings=settings) as server:
        with pytest.raises(CannotOpen, match=complaint):
            await opened(server).open()
        kernel = opened(server, "&durability=relaxed")
        with pytest.warns(RuntimeWarning, match=complaint):
            await kernel.open()
        await kernel.commit(P, note(1))
        health = await kernel.health()
        await kernel.close()
        assert health.writes
        assert complaint in health.detail


async def test_an_old_server_is_refused() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if line.strip() in (b"INFO", b"CLIENT", b"SELECT", b"CONFIG"):
                text = b"redis_version:6.2.14\r\nrole:master\r\naof_enabled:1\r\n"
                writer.write(b"$%d\r\n%b\r\n" % (len(text), text) if line.strip() == b"INFO" else b"+OK\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as old:
        port = old.sockets[0].getsockname()[1]
        with pytest.raises(CannotOpen, match="Redis 7"):
            await open_storage(f"redis://127.0.0.1:{port}").open()
        await asyncio.sleep(0.05)  # the kernel detects that its connections ended


async def test_a_replica_is_refused(always: OwnValkey) -> None:
    with own_valkey(settings={"replicaof": f"127.0.0.1 {always.port}"}) as replica:
        await linked(replica)
        with pytest.raises(StorageReadOnly, match="primary"):
            await opened(replica).open()


async def test_a_wrong_password_is_an_error() -> None:
    with own_valkey(password="right") as server:
        for url in (server.url.replace("right", "wrong"), server.url.replace(":right@", "")):
            with pytest.raises(CannotOpen, match="password") as caught:
                await open_storage(url).open()
            assert "wrong" not in str(caught.value)
        async with opened(server) as kernel:
            await kernel.commit(P, note(1))


async def test_an_unreachable_server_is_an_error(own: OwnValkey) -> None:
    own.kill()
    for url in (own.url, "redis://no-such-host.invalid:6379/0", "unix:///tmp/no/such/socket"):
        began = time.monotonic()
        with pytest.raises(StorageUnavailable, match="reached"):
            await open_storage(f"{url}?timeout=2").open()
        assert time.monotonic() - began < 10


async def test_a_server_that_never_responds_times_out(own: OwnValkey) -> None:
    own.pause()
    began = time.monotonic()
    with pytest.raises(StorageUnavailable):
        await open_storage(f"{own.url}?timeout=1").open()
    assert time.monotonic() - began < 5
    own.resume()


async def test_bad_urls_and_options(always: OwnValkey) -> None:
    for url in ("redis://h:99999/0", "unix://", "redis://h/0#x"):
        with pytest.raises(UnknownScheme):
            open_storage(url)
    for option in ("replicas=x", "replicas=-1", "timeout=0", "namespace=a b", "namespace=", "unknown=1"):
        with pytest.raises(InvalidValue):
            open_storage(f"redis://localhost/0?{option}")
    with pytest.raises(InvalidValue, match="database"):
        open_storage("redis://localhost/x")
    with pytest.raises(CannotOpen, match="no database"):
        await open_storage(f"redis://127.0.0.1:{always.port}/5000").open()


async def test_every_form_of_url(always: OwnValkey) -> None:
    for number, url in enumerate(
        (
            f"redis://127.0.0.1:{always.port}/7",
            f"valkey://127.0.0.1:{always.port}/7",
            f"redis://127.0.0.1:{always.port}?db=7",
            f"unix://{always.socket}?db=7",
        )
    ):
        async with open_storage(url) as kernel:
            await kernel.commit(P, note(number))
            assert (await kernel.log_state(P, "log", "s")).head == number + 1


async def test_namespaces_do_not_see_each_other(always: OwnValkey) -> None:
    async with opened(always, "&namespace=one") as one, opened(always, "&namespace=two") as two:
        await one.commit(P, Put("things", "a", b""))
        assert await two.get(P, "things", "a") is None
        assert list(await two.partitions()) == []


# ------------------------------------------------------------------------------------- restarts and broken connections


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_nothing_acknowledged_is_lost_by_kills(fsync: str, full: bool) -> None:
    """kill -9 during commits: each one is acknowledged and stored exactly once, in the order of the calls."""
    with own_valkey(settings={"appendfsync": fsync}) as server:
        if fsync == "everysec" and b"redis_version:7.0" in server.execute("INFO", "server"):
            with pytest.raises(CannotOpen, match="WAITAOF"):
                await opened(server).open()
            return
        async with opened(server, "&timeout=20") as kernel:
            numbers = iter(range(1_000_000))
            acknowledged: list[int] = []
            running = True

            async def write() -> None:
                while running:
                    number = next(numbers)
                    receipt = await kernel.commit(P, note(number))
                    acknowledged.append(number)
                    assert receipt.seqs("log", "s")[0] > 0

            writers = [asyncio.create_task(write()) for _ in range(4)]
            for _ in range(20 if full else 3):
                await asyncio.sleep(random.uniform(0.05, 0.3))
                server.kill()
                server.start()
            await asyncio.sleep(0.2)
            running = False
            await asyncio.gather(*writers)
            kept: list[int] = []
            while page := (await kernel.read_log(P, "log", "s", after=len(kept), limit=5000)).entries:
                kept += [int(entry.data) for entry in page]
            assert len(kept) == len(set(kept)), "a commit was made twice"
            assert set(acknowledged) <= set(kept), "an acknowledged commit is lost"
            assert acknowledged


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_commit_cut_anywhere_happens_once(always: OwnValkey, direction: Direction) -> None:
    """If the connection breaks after any number of bytes, a commit is made once and returns its correct result."""
    url = always.create_database()
    async with Proxy("127.0.0.1", always.port) as proxy, opened(always, url=proxy.url(url)) as kernel:
        chance = random.Random(7)
        for number in range(60):
            proxy.cut_after(chance.randint(1, 700 if direction == "up" else 150), direction)
            commits = [kernel.commit(P, note(number * 3 + place)) for place in range(3)]
            receipts = await asyncio.gather(*commits)
            seqs = [receipt.seqs("log", "s")[0] for receipt in receipts]
            assert seqs == [number * 3 + place + 1 for place in range(3)]
        assert await logged(kernel) == list(range(180))


async def test_claims_cut_anywhere_are_not_lost(always: OwnValkey) -> None:
    """A claim whose response was lost is returned again: no item stays held by a worker that did not get it."""
    url = always.create_database()
    async with Proxy("127.0.0.1", always.port) as proxy, opened(always, url=proxy.url(url)) as kernel:
        await kernel.commit(P, *(Enqueue("runs", f"k{n}") for n in range(40)))
        keys = []
        for number in range(40):
            proxy.cut_after(number * 7 + 1, "down")
            keys += [claim.key for claim in await kernel.claim("runs", "w")]
        assert sorted(keys) == sorted(f"k{n}" for n in range(40))


async def test_a_lost_response_times_out(always: OwnValkey) -> None:
    """A half-open connection: the call raises CommitInDoubt within its timeout, and the next ones work."""
    url = always.create_database()
    async with Proxy("127.0.0.1", always.port) as proxy, opened(always, "&timeout=1", proxy.url(url)) as kernel:
        await kernel.commit(P, note(0))
        proxy.swallow("down")
        began = time.monotonic()
        with pytest.raises(CommitInDoubt):
            await kernel.commit(P, note(1))
        with pytest.raises(StorageUnavailable):
            await kernel.get(P, "things", "a")
        assert time.monotonic() - began < 10
        proxy.allow()
        await kernel.commit(P, note(2))
        assert await logged(kernel) in ([0, 1, 2], [0, 2])


async def test_a_server_that_lost_its_functions_gets_them_again(own: OwnValkey) -> None:
    async with opened(own) as kernel:
        await kernel.commit(P, note(0))
        own.execute("FUNCTION", "FLUSH")
        await asyncio.gather(*(kernel.commit(P, note(n)) for n in range(1, 20)))
        assert await logged(kernel) == list(range(20))


async def test_a_stopped_server_is_an_error_within_the_timeout(own: OwnValkey) -> None:
    async with open_storage(f"{own.url}?timeout=1", declare=[THINGS]) as kernel:
        await kernel.commit(P, note(0))
        own.kill()
        began = time.monotonic()
        ends = await asyncio.gather(*(kernel.commit(P, note(n)) for n in range(1, 9)), return_exceptions=True)
        assert all(isinstance(end, StorageUnavailable) for end in ends)
        assert time.monotonic() - began < 5
        assert not (await kernel.health()).reads
        own.start()
        await kernel.commit(P, note(9))
        assert (await kernel.health()).writes


# ------------------------------------------------------------------------------------------------------------ failover


async def linked(replica: OwnValkey) -> None:
    """Wait until the replica is linked to its primary; in a thread, because their proxy runs in this loop."""
    for _ in range(200):
        if b"master_link_status:up" in await asyncio.to_thread(replica.execute, "INFO", "replication"):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the replica never linked up")


@pytest.fixture
async def pair() -> AsyncIterator[tuple[OwnValkey, OwnValkey, Proxy]]:
    """A primary, and a replica that is connected to it through a proxy."""
    with own_valkey() as primary:
        async with Proxy("127.0.0.1", primary.port) as link:
            with own_valkey() as replica:
                await asyncio.to_thread(replica.execute, "REPLICAOF", "127.0.0.1", str(link.port))
                await linked(replica)
                yield primary, replica, link


async def test_after_a_failover_nothing_acknowledged_is_missing(pair: tuple[OwnValkey, OwnValkey, Proxy]) -> None:
    """With replicas=1 a write that the replica has not confirmed is not acknowledged; so a failover loses none."""
    primary, replica, link = pair
    async with open_storage(f"{primary.url}?replicas=1&timeout=2", declare=[THINGS]) as kernel:
        acknowledged = []
        for number in range(50):
            await kernel.commit(P, note(number))
            acknowledged.append(number)
        await kernel.commit(P, Enqueue("runs", "a"))
        (claim,) = await kernel.claim("runs", "w", lease_seconds=0.5)
        link.swallow()  # first the link is cut, then the primary continues for a while
        ends = await asyncio.gather(*(kernel.commit(P, note(n)) for n in range(50, 60)), return_exceptions=True)
        assert all(isinstance(end, CommitInDoubt) for end in ends)
        primary.kill()
    await asyncio.to_thread(replica.execute, "REPLICAOF", "NO", "ONE")
    async with opened(replica) as kernel:
        kept = await logged(kernel)
        assert kept[: len(acknowledged)] == acknowledged
        await asyncio.sleep(0.6)
        (again,) = await kernel.claim("runs", "v")
        assert again.fence > claim.fence


async def test_without_replicas_a_failover_may_lose_data_but_fences_grow(
    pair: tuple[OwnValkey, OwnValkey, Proxy],
) -> None:
    """A replica that missed the last claims still issues greater fences, because they include the time."""
    primary, replica, link = pair
    async with open_storage(f"{primary.url}?timeout=1", declare=[THINGS]) as kernel:
        await kernel.commit(P, Enqueue("runs", "a"))
        await asyncio.sleep(0.3)
        link.swallow()
        fences = []
        for _ in range(20):
            (claim,) = await kernel.claim("runs", "w")
            fences.append(claim.fence)
            await kernel.commit(P, claim.release())
        primary.kill()
    await asyncio.to_thread(replica.execute, "REPLICAOF", "NO", "ONE")
    async with opened(replica) as kernel:
        (claim,) = await kernel.claim("runs", "v")
        assert claim.fence > max(fences)


async def test_a_primary_that_became_a_replica_is_an_error(own: OwnValkey, always: OwnValkey) -> None:
    async with open_storage(f"{own.url}?timeout=1", declare=[THINGS]) as kernel:
        await kernel.commit(P, note(0))
        own.execute("REPLICAOF", "127.0.0.1", str(always.port))
        with pytest.raises(StorageUnavailable, match="replica") as caught:
            await kernel.commit(P, note(1))
        assert not isinstance(caught.value, CommitInDoubt)
        own.execute("REPLICAOF", "NO", "ONE")
        await kernel.commit(P, Put("things", "a", b""))


async def test_a_server_that_stops_persisting_is_detected(own: OwnValkey) -> None:
    """Durable checks after each batch that it is on disk; if the server can't confirm it, nothing is acknowledged."""
    async with opened(own) as kernel:
        await kernel.commit(P, note(0))
        own.execute("CONFIG", "SET", "appendonly", "no")
        with pytest.raises(CommitInDoubt):
            await kernel.commit(P, note(1))
        own.execute("CONFIG", "SET", "appendonly", "yes")
        for _ in range(100):  # the server first rewrites its file
            (end,) = await asyncio.gather(kernel.commit(P, note(2)), return_exceptions=True)
            if not isinstance(end, Exception):
                break
            await asyncio.sleep(0.05)
        assert set(await logged(kernel)) == {0, 1, 2}


# ---------------------------------------------------------------------------------------------------------- no memory


async def test_a_full_server_refuses_writes_and_accepts_deletes() -> None:
    with own_valkey(settings={"maxmemory": "8mb"}) as server:
        async with opened(server) as kernel:
            puts = (Put("things", f"k{number}", bytes(200_000), {"rank": number}) for number in range(100))
            ends = [await asyncio.gather(kernel.commit(P, put), return_exceptions=True) for put in puts]
            count = sum(not isinstance(end, StorageFull) for (end,) in ends)
            assert 5 < count < 100
            assert (await kernel.get(P, "things", "k0")) is not None
            with pytest.raises(StorageFull):
                await kernel.stage_blob(P, bytes(4_000_000))
            assert (await kernel.count(P, Query("things"))).value == count, "a refused commit left something"
            for number in range(100):
                await kernel.commit(P, Delete("things", f"k{number}"))
            for _ in range(50):  # the server frees memory asynchronously
                try:
                    await kernel.commit(P, Put("things", "again", b""))
                    break
                except StorageFull:
                    await asyncio.sleep(0.1)
            assert (await kernel.count(P, Query("things"))).value == 1
            assert [problem async for problem in kernel.check()] == []


async def test_a_full_server_can_be_opened() -> None:
    """A process that restarts can read and free space; a program whose functions don't fit gets StorageFull."""
    with own_valkey(settings={"maxmemory": "8mb"}) as server:
        async with opened(server) as kernel:
            await kernel.commit(P, Put("things", "big", bytes(500_000), {"rank": 1}))
        server.execute("CONFIG", "SET", "maxmemory", "1mb")
        async with opened(server) as kernel:
            assert (await kernel.get(P, "things", "big")) is not None
            with pytest.raises(StorageFull):
                await kernel.commit(P, Put("things", "more", bytes(500_000), {"rank": 2}))
            await kernel.commit(P, Delete("things", "big"))
        server.execute("FUNCTION", "FLUSH")
        with pytest.raises(StorageFull, match="maxmemory"):
            async with opened(server):
                pass


# ------------------------------------------------------------------------------------------------------------- damage


async def test_check_and_reads_find_damage(own: OwnValkey) -> None:
    async with opened(own, "&namespace=n") as kernel:
        await kernel.commit(P, Put("things", "a", b"body", {"rank": 1}), Put("things", "b", b"", {"rank": 2}))
        await kernel.commit(P, note(0), Put("things", "c", b"", {"rank": 3}))
        blob = await kernel.stage_blob(P, b"bytes")
        assert [problem async for problem in kernel.check()] == []
        own.execute("HSET", "n:{p}:r/things/a", "b", "bady")
        own.execute("ZREM", "n:{p}:i/things/1/1", b"\x10\x80\0\0\0\0\0\0\x02 b\0")
        own.execute("HSET", "n:{p}:s/log/s", "h", "5")
        upload = own.execute("HGET", f"n:{{p}}:b/{blob.digest}", "u").decode()
        own.execute("SETRANGE", f"n:{{p}}:u/{upload}/0", "33", "!")
        found = [problem async for problem in kernel.check()]
        wheres = {problem.where for problem in found}
        assert {
            "record things/a",
            "record things/b",
            "log log/s",
            f"blob {blob.digest}",
            "index things/by_rank",
        } <= wheres
        with pytest.raises(StorageCorrupt):
            await kernel.get(P, "things", "a")


async def test_a_record_that_is_replaced_during_a_check_is_no_damage(
    own: OwnValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are counted after one was removed and before another one is added: the totals do not change."""
    scans = 0

    async def keys(self: RedisServers, pattern: bytes) -> AsyncIterator[bytes]:
        nonlocal scans
        scans += 1
        if scans > 1:
            async for key in scan(self, pattern):
                yield key

    async with opened(own, "&namespace=m") as kernel:
        assert isinstance(kernel, RedisKernel)
        await kernel.commit(P, Put("things", "a", b"", {"rank": 1}))
        scan = RedisServers.keys
        monkeypatch.setattr(RedisServers, "keys", keys)
        assert await inspect._totals(kernel._store, kernel._catalog, P, "things", 0) == []
        assert scans == 2


# ------------------------------------------------------------------------------------------------------------ warnings


def test_a_well_configured_server_gives_no_warning(always: OwnValkey) -> None:
    async def use() -> None:
        async with opened(always, "&durability=relaxed") as kernel:
            await kernel.commit(P, note(0))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(use())


async def test_pending_commits_are_written_without_close(always: OwnValkey) -> None:
    """Commits that were never awaited finish when the loop ends."""
    url = always.create_database()
    program = (
        "import asyncio; from keelbolt.kernel import *\n"
        "async def main():\n"
        f"    kernel = open_storage({url!r}); await kernel.open()\n"
        "    for n in range(100): kernel.commit('p', Append('log', 's', (Draft('note', b'%d' % n),)))\n"
        "asyncio.run(main())"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-W", "ignore", "-c", program)
    assert await child.wait() == 0
    async with opened(always, url=url) as kernel:
        assert await logged(kernel) == list(range(100))


async def test_a_worker_forgets_the_partitions_where_it_holds_nothing(always: OwnValkey) -> None:
    """A worker that serves many tenants does not grow with each of them."""
    async with opened(always, "&namespace=tenants") as kernel:
        assert isinstance(kernel, RedisKernel)
        for number in range(20):
            await kernel.commit(f"tenant-{number}", Enqueue("runs", "a"))
            (claim,) = await kernel.claim("runs", "worker")
            await claim.scope.commit(claim.complete())
        assert await kernel.claim("runs", "worker") == []
        assert sum(map(len, kernel._queues._renewed.values())) == 0
