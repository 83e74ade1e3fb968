"""Copies of a whole store between all pairs of engines: readers see the same data, also after interruptions."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from keelbolt.errors import (
    CopyMismatch,
    CopyOutdated,
    DestinationInUse,
    NotTransferable,
    StorageFilling,
    StorageMoved,
    StoragePaused,
    TransferError,
)
from keelbolt.kernel import (
    Append,
    Collection,
    Delete,
    Draft,
    Drop,
    Enqueue,
    Entry,
    Index,
    Insert,
    Kernel,
    Patch,
    Put,
    Query,
    new_id,
    open_storage,
)
from keelbolt.kernel.base_kernel import BaseKernel
from keelbolt.kernel.copies import copy_storage
from keelbolt.kernel.declarations import CheckedCollection
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.kernel.sqlite.transfer import FileTransfer
from keelbolt.kernel.transfer.copy import CopyProgress, digests_of
from keelbolt.kernel.transfer.ports import Transfer
from keelbolt.kernel.transfer.rows import (
    BlobRow,
    ChunkRow,
    CollectionRow,
    EntryRow,
    HoldingRow,
    ItemRow,
    PartitionRow,
    RecordRow,
    Row,
    RowDigests,
    StreamRow,
    Table,
)
from keelbolt.testing.postgres import PostgresServer
from keelbolt.testing.valkey import ValkeyServer
from tests.integration.kernel.whole_store import LONG, PARTITIONS, fill, seen

pytest_plugins = ["keelbolt.testing.pytest"]

ENGINES = ("memory", "sqlite", "postgresql", "redis")
SHARED = ("sqlite", "postgresql", "redis")  # by several processes
PLAIN = Collection("plain")


class Places:
    """Creates new, empty storages."""

    def __init__(self, folder: Path, postgres: PostgresServer, valkey: ValkeyServer) -> None:
        self._folder = folder
        self._postgres = postgres
        self._valkey = valkey

    def url(self, engine: str) -> str:
        if engine == "memory":
            return "memory:"
        if engine == "sqlite":
            return f"sqlite:///{self._folder}/{new_id()}.db"
        if engine == "redis":
            return f"{self._valkey.url}?namespace=copy-{new_id()}"
        return f"{self._postgres.url}?schema=copy_{new_id().replace('-', '')}"


@pytest.fixture
def places(tmp_path: Path, keelbolt_postgres: PostgresServer, keelbolt_valkey: ValkeyServer) -> Places:
    return Places(tmp_path, keelbolt_postgres, keelbolt_valkey)


async def problems(kernel: Kernel) -> list[str]:
    return [f"{problem.where}: {problem.what}" async for problem in kernel.check()]


@pytest.mark.parametrize("destination", ENGINES)
@pytest.mark.parametrize("source", ENGINES)
async def test_every_kind_of_row_arrives(places: Places, source: str, destination: str) -> None:
    async with open_storage(places.url(source)) as one, open_storage(places.url(destination)) as other:
        await fill(one)
        copied = await copy_storage(one, other)
        assert await seen(other) == await seen(one)
        assert await problems(other) == []
        assert copied.families["records of note"] == 8 * len(PARTITIONS)
        assert copied.families["holders of blobs"] == 2 * len(PARTITIONS)
        for partition in PARTITIONS:
            await _use(one, other, partition)


async def _use(one: Kernel, other: Kernel, partition: str) -> None:
    """Check that versions, seqs, dedupe keys, fences, holders and expiries continue from their old values."""
    receipt = await other.commit(partition, Put("note", "a", b"next"), Append("events", "s", (Draft("x", b""),)))
    assert receipt.outcomes == (3, (15,))
    again = Draft("chunk", b"", dedupe=f"5-{LONG[2:]}")
    assert (await other.commit(partition, Append("events", LONG, (again,)))).outcomes == ((11,),)
    old = await one.work(partition, "side", "held")
    assert old is not None
    item = await other.work(partition, "side", "held")
    assert item is not None
    assert (item.state, item.attempt, item.fence) == ("waiting", 0, old.fence)
    fresh = (await other.commit(partition, Enqueue("jobs", "new", worker="w"))).outcomes[0]
    assert isinstance(fresh, int)
    assert fresh > old.fence
    later = await other.work(partition, "jobs", "later")
    assert later is not None
    assert 3500 < later.ready_in <= 3600
    assert await other.get(partition, "secret", "short") is None
    secret = await other.get(partition, "secret", "long")
    assert secret is not None


@pytest.mark.parametrize("engine", ENGINES)
async def test_blobs_keep_their_bytes_and_holders(places: Places, engine: str) -> None:
    data = bytes(range(256)) * 5000
    async with open_storage(places.url("sqlite")) as one, open_storage(places.url(engine)) as other:
        await fill(one)
        blob = await one.stage_blob("acme/alice", data)
        await copy_storage(one, other, keep_source=True)
        reader = await other.open_blob("acme/alice", blob.digest)
        assert await reader.read() == data
        empty = await one.stage_blob("acme/alice", b"")
        assert (await other.open_blob("acme/alice", empty.digest)).size == 0
        assert (await other.sweep()).blobs == 0


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_destination_with_data_is_not_changed(places: Places, engine: str) -> None:
    async with open_storage(places.url("sqlite")) as one, open_storage(places.url(engine), declare=[PLAIN]) as other:
        await fill(one)
        await other.commit("p", Insert("plain", "mine", b"kept"))
        with pytest.raises(DestinationInUse):
            await copy_storage(one, other)
        with pytest.raises(DestinationInUse):
            await copy_storage(one, other, restart=True)
        assert await other.get("p", "plain", "mine") is not None
        await other.commit("p", Insert("plain", "other", b"still writable"))


@pytest.mark.parametrize("engine", SHARED)
async def test_a_storage_is_not_copied_onto_itself(places: Places, engine: str) -> None:
    url = places.url(engine)
    async with open_storage(url) as one, open_storage(url) as same:
        with pytest.raises(NotTransferable, match="the same storage"):
            await copy_storage(one, same)


async def test_an_engine_without_transfer_is_refused(places: Places) -> None:
    class Other(MemoryKernel):
        engine = "other"

        def _transfer(self) -> Transfer:
            return BaseKernel._transfer(self)

    async with Other() as one, open_storage("memory:") as other:
        with pytest.raises(NotTransferable, match="'other' can't be copied"):
            await copy_storage(one, other)


# ------------------------------------------------------------------------------------------------------ interrupted


class Stop(Exception):
    pass


PAIRS = [("sqlite", engine) for engine in ENGINES] + [("redis", "sqlite"), ("redis", "redis")]


@pytest.mark.parametrize(("source", "engine"), PAIRS)
@pytest.mark.parametrize("table", ["record", "entry", "work", "chunk", "holding"])
async def test_an_interrupted_copy_continues(
    places: Places, source: str, engine: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run starts where the first one stopped; the destination is unusable in between."""
    monkeypatch.setattr(f"keelbolt.kernel.{source}.export.PAGE_ROWS", 3)
    async with open_storage(places.url(source)) as one, open_storage(places.url(engine)) as other:
        await fill(one)

        def stop(progress: CopyProgress) -> None:
            if progress.phase == "copy" and progress.table == table and progress.done >= 3:
                raise Stop

        with pytest.raises(Stop):
            await copy_storage(one, other, tell=stop)
        with pytest.raises(StorageFilling):
            await other.commit("p", Append("events", "s", (Draft("x", b""),)))
        with pytest.raises(StorageFilling):
            await other.claim("jobs", "w")
        assert not (await other.health()).writes

        steps: list[CopyProgress] = []
        copied = await copy_storage(one, other, tell=steps.append)
        assert copied.resumed
        first = next(step for step in steps if step.phase == "copy")
        assert (first.table, first.done) >= (table, 3)
        assert await seen(other) == await seen(one)
        assert await problems(other) == []


@pytest.mark.parametrize("engine", ENGINES)
async def test_an_unfinished_copy_of_another_source_is_refused(places: Places, engine: str) -> None:
    async with (
        open_storage(places.url("sqlite")) as one,
        open_storage(places.url("sqlite")) as two,
        open_storage(places.url(engine)) as other,
    ):
        await fill(one)
        await fill(two)
        await two.commit("only/two", Append("events", "s", (Draft("x", b""),)))
        await _half(one, other)
        with pytest.raises(DestinationInUse, match="another storage"):
            await copy_storage(two, other)
        await copy_storage(two, other, restart=True)
        assert await other.partitions() == await two.partitions()
        assert await seen(other) == await seen(two)
        assert await problems(other) == []


async def _half(one: Kernel, other: Kernel, *, table: str = "entry", restart: bool = False) -> None:
    def stop(progress: CopyProgress) -> None:
        if progress.table == table and progress.done:
            raise Stop

    with pytest.raises(Stop):
        await copy_storage(one, other, tell=stop, restart=restart)


@pytest.mark.parametrize("source", ENGINES)
async def test_a_source_that_changed_between_two_runs_is_detected(places: Places, source: str) -> None:
    async with open_storage(places.url(source)) as one, open_storage(places.url("sqlite")) as other:
        await fill(one)
        await _half(one, other)
        await one.commit("acme/alice", Put("note", "a", b"changed after it was copied"))
        with pytest.raises(CopyOutdated, match="records of note"):
            await copy_storage(one, other)
        await one.commit("acme/alice", Put("note", "a", b"the source is not marked"))
        await copy_storage(one, other, restart=True)
        assert await seen(other) == await seen(one)


@pytest.mark.parametrize(
    ("source", "engine"), [("sqlite", "sqlite"), ("sqlite", "postgresql"), ("postgresql", "sqlite")]
)
async def test_rows_recreated_between_two_runs_give_a_correct_copy(places: Places, source: str, engine: str) -> None:
    """The second run may read a row again; then it fails, or the copy is still complete."""
    destination = places.url(engine)
    async with open_storage(places.url(source)) as one:
        await fill(one)
        for table in ("record", "stream", "blob"):
            async with open_storage(destination) as other:
                await _half(one, other, table=table)
            for partition in PARTITIONS:
                await one.commit(partition, Delete("note", "a"), Drop("events", "s"))
                await one.commit(partition, Insert("note", "a", b"new"), Append("events", "s", (Draft("x", b""),)))
            async with open_storage(destination) as other:
                try:
                    await copy_storage(one, other, keep_source=True)
                except CopyOutdated:
                    await copy_storage(one, other, keep_source=True, restart=True)
                assert await seen(other) == await seen(one)
                assert await problems(other) == []
                await _transfer(other).wipe()


KILLED = """
import asyncio, os, signal, sys
from keelbolt.kernel import open_storage
from keelbolt.kernel.copies import copy_storage

source, destination, phase, table, rows = sys.argv[1:]


def tell(step):
    if step.phase == phase and step.table == table and step.done >= int(rows):
        os.kill(os.getpid(), signal.SIGKILL)


async def main():
    async with open_storage(source) as one, open_storage(destination) as other:
        await copy_storage(one, other, tell=tell)


asyncio.run(main())
"""


@pytest.mark.parametrize(("origin", "engine"), [pair for pair in PAIRS if pair[1] != "memory"])
async def test_a_killed_copier_is_run_again(places: Places, origin: str, engine: str) -> None:
    """kill -9 in every phase; the last run ends with the complete store."""
    source, destination = places.url(origin), places.url(engine)
    async with open_storage(source, declare=[PLAIN]) as one:
        for number in range(12):
            operations = [Insert("plain", f"{number}-{at}", b"x" * 200) for at in range(500)]
            await one.commit("p", *operations)
            await one.commit("p", Append("events", f"s{number % 3}", (Draft("x", b"y" * 100),) * 500))
    for phase, table, rows in (("copy", "record", 4000), ("copy", "entry", 2000), ("verify", "record", 1)):
        words = [source, destination, phase, table, str(rows)]
        killed = subprocess.run([sys.executable, "-c", KILLED, *words], capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        async with open_storage(source) as one:
            with pytest.raises(StoragePaused):  # until the mark of the dead copier expires
                await one.commit("p", Put("plain", "0-0", b"changed"))
    async with open_storage(source) as one, open_storage(destination) as other:
        with pytest.raises(StorageFilling):
            await other.commit("p", Append("events", "s", (Draft("x", b""),)))
        copied = await copy_storage(one, other)
        assert copied.resumed
        assert (await other.log_state("p", "events", "s0")).head == 2000
        assert (await other.stats()).records == (await one.stats()).records
        assert await problems(other) == []


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_copier_killed_after_the_source_was_marked_is_run_again(
    places: Places, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_storage(places.url(engine)) as one, open_storage(places.url("sqlite")) as other:
        await fill(one)
        with monkeypatch.context() as patched:
            patched.setattr(FileTransfer, "release", _stop)
            with pytest.raises(Stop):
                await copy_storage(one, other)
        with pytest.raises(StorageMoved):
            await one.claim("jobs", "w")
        assert (await copy_storage(one, other)).resumed
        assert await seen(other) == await seen(one)


async def _stop(_transfer: Transfer) -> None:
    raise Stop


# ------------------------------------------------------------------------------------------------------------ marks


async def _write(kernel: Kernel, name: int, acknowledged: dict[str, bytes], *, seconds: float) -> int:
    """Write until the storage raises StorageMoved. Return the number of acknowledged commits."""
    number = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        key, body = f"{name}-{number % 50}", f"{name} {number}".encode()
        entry = Append("events", f"w{name}", (Draft("n", str(number).encode(), dedupe=str(number)),))
        try:
            await kernel.commit(f"p{name}", Put("plain", key, body), entry, Enqueue("jobs", key))
        except StoragePaused:
            await asyncio.sleep(0.01)
            continue
        except StorageMoved:
            break
        acknowledged[f"p{name}/{key}"] = body
        await asyncio.sleep(0.001)  # memory returns at once; let other tasks run
        number += 1
    return number


@pytest.mark.parametrize("destination", ENGINES)
@pytest.mark.parametrize("source", ENGINES)
async def test_nothing_acknowledged_is_lost_by_a_move(places: Places, source: str, destination: str) -> None:
    """Writers that were not stopped are refused; each acknowledged commit is in the destination."""
    acknowledged: dict[str, bytes] = {}
    url = places.url(source)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(open_storage(url, declare=[PLAIN]))
        other = await stack.enter_async_context(open_storage(places.url(destination)))
        # Like other processes: each has its own connections, and detects the copy only through the store.
        users = [one] * 4
        if source != "memory":
            users = [await stack.enter_async_context(open_storage(url, declare=[PLAIN])) for _ in range(4)]
        await fill(one)
        writers = [asyncio.ensure_future(_write(users[name], name, acknowledged, seconds=30)) for name in range(3)]
        claimer = asyncio.ensure_future(_claim(users[3]))
        for name in (1, 2):
            assert [entry.seq async for entry in _some(one, f"p{name}", f"w{name}", 21)][-1] == 21
        read = [entry.seq async for entry in _some(one, "p0", "w0", 21)]
        await copy_storage(one, other)
        counts = await asyncio.gather(*writers)
        await claimer
        assert min(counts) > 20
        for name, count in enumerate(counts):
            page = await other.read_log(f"p{name}", "events", f"w{name}", limit=10_000)
            assert [int(entry.data) for entry in page.entries] == list(range(count))
            assert [entry.seq for entry in page.entries] == list(range(1, count + 1))
        for place, body in acknowledged.items():
            partition, key = place.split("/")
            record = await other.get(partition, "plain", key)
            assert record is not None
            assert record.body == body
            original = await one.get(partition, "plain", key)
            assert original is not None
            assert record.version == original.version
        rest = [entry.seq async for entry in _some(other, "p0", "w0", counts[0] - 21, after=read[-1])]
        assert read + rest == list(range(1, counts[0] + 1))
        await other.commit("p0", Append("events", "w0", (Draft("n", b"after"),)))
        with pytest.raises(StorageMoved):
            await one.claim("jobs", "w")
        with pytest.raises(StorageMoved):
            await one.stage_blob("p0", b"too late")
        assert await problems(other) == []
        assert await seen(other) == await seen(one)


async def _claim(kernel: Kernel) -> None:
    """A concurrent worker: claims, completes, releases."""
    while True:
        try:
            for claim in await kernel.claim("jobs", "worker", limit=3):
                if claim.partition.startswith("p"):
                    await kernel.commit(claim.partition, claim.complete())
                else:
                    await kernel.commit(claim.partition, claim.release(ready_in=3600.0))
        except StoragePaused:
            await asyncio.sleep(0.01)
        except StorageMoved:
            return
        await asyncio.sleep(0.01)


async def _some(kernel: Kernel, partition: str, stream: str, count: int, *, after: int = 0) -> AsyncIterator[Entry]:
    if not count:
        return
    tail = kernel.tail(partition, "events", stream, after=after)
    async for entry in tail:
        yield entry
        count -= 1
        if not count:
            break
    await tail.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_source_can_stay_in_use(places: Places, engine: str) -> None:
    """With keep_source, writers continue after the copy; their later writes are not in it."""
    async with open_storage(places.url(engine), declare=[PLAIN]) as one, open_storage(places.url("sqlite")) as other:
        await fill(one)
        refused = False

        async def write() -> None:
            nonlocal refused
            try:
                await one.commit("p", Put("plain", "during", b""))
            except StoragePaused:
                refused = True

        writing: list[asyncio.Future[None]] = []

        def tell(progress: CopyProgress) -> None:
            if progress.table == "entry" and progress.done and not writing:
                writing.append(asyncio.ensure_future(write()))

        await copy_storage(one, other, keep_source=True, tell=tell)
        await writing[0]
        assert refused is (engine == "redis")  # the others have snapshots
        await one.commit("p", Put("plain", "after", b""))
        assert await other.get_many("p", "plain", ["during", "after"]) == [None, None]


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_mark_of_a_dead_copier_expires(places: Places, engine: str) -> None:
    """While the mark is valid, writes are refused, but leases can be renewed and released; then writes resume."""
    async with open_storage(places.url(engine), declare=[PLAIN]) as one:
        transfer = _transfer(one)
        await transfer.set_mark("copying", "a copy", seconds=0.5)
        with pytest.raises(StoragePaused) as caught:
            await one.commit("p", Put("plain", "a", b""))
        assert caught.value.retryable
        with pytest.raises(StoragePaused):
            await one.claim("jobs", "w")
        with pytest.raises(StoragePaused):
            await one.sweep()
        with pytest.raises(StoragePaused):
            await one.stage_blob("p", b"not now")
        with pytest.raises(StoragePaused):
            await one.commit("p", Delete("plain", "a"))
        await one.heartbeat("w")
        await one.retire("w")
        assert await one.get("p", "plain", "a") is None
        assert not (await one.health()).writes
        await asyncio.sleep(0.6)
        await one.commit("p", Put("plain", "a", b""))
        assert await transfer.mark() is None


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_copy_renews_its_valid_mark(places: Places, engine: str) -> None:
    async with open_storage(places.url(engine)) as one:
        transfer = _transfer(one)
        for state in ("copying", "moved", None):
            with pytest.raises(CopyOutdated):
                await transfer.set_mark(state, "a copy", if_held=True)
        await transfer.set_mark("copying", "a copy", seconds=60.0)
        with pytest.raises(CopyOutdated):
            await transfer.set_mark(None, "another copy", if_held=True)
        await transfer.set_mark("copying", "a copy", seconds=0.05, if_held=True)
        await asyncio.sleep(0.1)
        with pytest.raises(CopyOutdated):
            await transfer.set_mark("moved", "a copy", if_held=True)
        assert await transfer.mark() is None
        assert (await one.health()).writes


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_copy_with_an_expired_mark_fails(places: Places, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark expired before the copy was complete, so writes were possible: the destination can't be used."""

    async def asleep(*_args: object) -> None:
        pass

    monkeypatch.setattr("keelbolt.kernel.transfer.copy.MARK_SECONDS", 0.01)
    monkeypatch.setattr("keelbolt.kernel.transfer.copy._renew", asleep)
    async with open_storage(places.url(engine)) as one, open_storage(places.url("sqlite")) as other:
        await fill(one)
        with pytest.raises(CopyOutdated, match="writes were possible"):
            await copy_storage(one, other)
        assert (await one.health()).writes
        with pytest.raises(StorageFilling):
            await other.claim("jobs", "w")


@pytest.mark.parametrize("engine", SHARED)
async def test_other_processes_obey_the_mark(places: Places, engine: str) -> None:
    """A writer with its own connection, like another process, is refused as soon as the mark is set."""
    url = places.url(engine)
    async with open_storage(url, declare=[PLAIN]) as one, open_storage(url) as stranger:
        await stranger.commit("p", Put("plain", "a", b""))
        assert isinstance(one, BaseKernel)
        await one.transfer().set_mark("moved", "a copy")
        with pytest.raises(StorageMoved, match="moved"):
            await stranger.commit("p", Put("plain", "a", b""))
        assert await stranger.get("p", "plain", "a") is not None
        await one.transfer().set_mark(None, "a copy")
        await stranger.commit("p", Put("plain", "a", b""))


@pytest.mark.parametrize("engine", ENGINES)
async def test_releases_during_a_copy_do_not_change_it(places: Places, engine: str) -> None:
    """Leases are not copied, so renewing one, or releasing everything, does not affect the copy."""
    async with open_storage(places.url(engine)) as one:
        transfer = _transfer(one)
        await one.commit("p", Enqueue("jobs", "a"), Enqueue("jobs", "b"))
        assert len(await one.claim("jobs", "w", limit=2)) == 2
        await transfer.set_mark("copying", "a copy", seconds=60.0)
        async with transfer.reading() as reading:
            before = await digests_of(reading)
        await one.heartbeat("w")
        assert await one.retire("w") == 2
        async with transfer.reading() as reading:
            assert before.differing(await digests_of(reading)) == []


@pytest.mark.parametrize("engine", ENGINES)
async def test_rows_without_a_parent_are_skipped(places: Places, engine: str) -> None:
    """On Redis, rows may also be written twice, because a page and its note have no common transaction."""
    stream = StreamRow("p", "log", "s", 3, 0)
    entries = [EntryRow("p", "log", "s", seq, seq, "x", b"data", f"d{seq}") for seq in (1, 2, 3)]
    rows: list[tuple[Table, list[Row]]] = [
        ("collection", [CollectionRow("plain", CheckedCollection(PLAIN).dump())]),
        ("record", [RecordRow("p", "plain", "a", 7, "", None, b"body")]),
        ("stream", [stream]),
        ("entry", [*entries]),
        ("work", [ItemRow("p", "jobs", "a", "waiting", "", 0, 0, 2, 5, 9, None)]),
        ("blob", [BlobRow("p", "0" * 64, 3, None)]),
        ("chunk", [ChunkRow("p", "0" * 64, 0, b"abc")]),
        ("holding", [HoldingRow("p", "0" * 64, "me")]),
        # Rows without a parent are skipped.
        ("record", [RecordRow("p", "unknown", "a", 7, "", None, b"body")]),
        ("entry", [EntryRow("p", "log", "unknown", 1, 1, "x", b"data", None)]),
        ("chunk", [ChunkRow("p", "1" * 64, 0, b"abc")]),
        ("holding", [HoldingRow("p", "1" * 64, "me")]),
    ]
    async with open_storage(places.url(engine)) as one:
        transfer = _transfer(one)
        for _ in range(2 if engine == "redis" else 1):
            for table, some in rows:
                await transfer.put(table, some, "{}")
        await transfer.raise_fence(9)
        async with transfer.reading() as reading:
            found = await digests_of(reading)
        expected = RowDigests()
        expected.add([PartitionRow("p"), *(row for _, some in rows[:8] for row in some)])
        assert found.differing(expected) == []
        assert await problems(one) == []
        receipt = await one.commit("p", Append("log", "unknown", (Draft("x", b""),)))
        assert receipt.outcomes == ((1,),)  # the skipped rows do not conflict with new ones


@pytest.mark.parametrize("engine", ENGINES)
async def test_fences_continue_above_the_raised_one(places: Places, engine: str) -> None:
    async with open_storage(places.url(engine)) as one:
        transfer = _transfer(one)
        await transfer.raise_fence(1 << 52)
        await transfer.raise_fence(5)
        fence = (await one.commit("p", Enqueue("jobs", "a", worker="w"))).outcomes[0]
        assert isinstance(fence, int)
        assert fence > 1 << 52
        async with transfer.reading() as reading:
            assert await reading.last_fence() >= fence


async def test_a_process_with_an_earlier_declaration_uses_the_new_one(places: Places) -> None:
    """A process declared a collection before the destination was filled with another declaration of the same name."""
    fields: dict[str, type[str]] = {"a": str, "b": str}
    early = Collection("thing", fields=fields, indexes=(Index("by_a", ("a",)),))
    late = Collection("thing", fields=fields, indexes=(Index("by_b", ("b",)), Index("by_a", ("a",))))
    url = places.url("redis")
    async with (
        open_storage(places.url("sqlite"), declare=[late]) as one,
        open_storage(url, declare=[early]) as stranger,
        open_storage(url) as other,
    ):
        await one.commit("p", Insert("thing", "1", b"", {"a": "x", "b": "y"}))
        await copy_storage(one, other)
        await stranger.commit("q", Insert("thing", "2", b"", {"a": "x", "b": "y"}))
        for partition, key in (("p", "1"), ("q", "2")):
            for kernel, query in ((other, {"b": "y"}), (other, {"a": "x"}), (stranger, {"a": "x"})):
                page = await kernel.find(partition, Query("thing", query))
                assert [record.key for record in page.records] == [key]


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_source_belongs_to_one_copy_at_a_time(places: Places, engine: str) -> None:
    async with (
        open_storage(places.url(engine)) as one,
        open_storage(places.url("sqlite")) as other,
        open_storage(places.url("sqlite")) as another,
        open_storage(places.url("sqlite")) as third,
    ):
        await fill(one)
        await _transfer(one).set_mark("copying", "another copy", seconds=60.0)
        with pytest.raises(TransferError, match="another copy"):
            await copy_storage(one, other)
        assert (await other.health()).writes  # the destination was not changed
        await _half(one, other, restart=True)
        with pytest.raises(StorageFilling):
            await copy_storage(other, third)
        await copy_storage(one, other)
        with pytest.raises(StorageMoved):
            await copy_storage(one, another)
        await copy_storage(one, another, keep_source=True)  # the source stays moved
        assert await seen(another) == await seen(one)
        with pytest.raises(StorageMoved):
            await one.commit("acme/alice", Append("events", "s", (Draft("x", b""),)))


def _transfer(kernel: Kernel) -> Transfer:
    assert isinstance(kernel, BaseKernel)
    return kernel.transfer()


@pytest.mark.parametrize("engine", ENGINES)
async def test_collections_that_only_the_destination_declares_stay_declared(places: Places, engine: str) -> None:
    found = Collection("found", fields={"a": str}, indexes=(Index("a", equal=("a",)),))
    async with (
        open_storage("memory:", declare=[PLAIN]) as one,
        open_storage(places.url(engine), declare=[found]) as other,
    ):
        await one.commit("p", Insert("plain", "a", b""))
        await copy_storage(one, other)
        await other.commit("p", Insert("found", "b", b"", {"a": "1"}))
        page = await other.find("p", Query("found", {"a": "1"}))
        assert [record.key for record in page.records] == ["b"]


@pytest.mark.parametrize("source", ENGINES)
async def test_an_empty_partition_is_copied(places: Places, source: str) -> None:
    async with open_storage(places.url(source), declare=[PLAIN]) as one, open_storage(places.url("sqlite")) as other:
        await one.commit("gone", Insert("plain", "a", b""))
        await one.commit("gone", Delete("plain", "a"))
        await copy_storage(one, other)
        assert await other.partitions() == ["gone"]


@pytest.mark.parametrize("source", ["sqlite", "redis"])
async def test_a_copy_that_differs_from_its_source_is_refused(places: Places, source: str) -> None:
    """A row is lost in the destination after it was written, before both sides are compared."""
    key = ("acme/bob", "note", "b")
    async with open_storage(places.url(source)) as one, open_storage("memory:") as other:
        await fill(one)
        assert isinstance(other, MemoryKernel)

        def lose(progress: CopyProgress) -> None:
            if progress.phase == "copy" and progress.table == "holding" and progress.done:
                del other._content.ledger.records[key]

        with pytest.raises(CopyMismatch, match="records of note"):
            await copy_storage(one, other, tell=lose)
        assert (await one.health()).writes


@pytest.mark.parametrize("engine", ENGINES)
async def test_fields_keep_their_text(places: Places, engine: str) -> None:
    """Order of fields, sign of zero, exact numbers and lone surrogates are preserved."""
    odd = Collection("odd", fields={"z": float, "a": str, "m": int, "b": bool}, indexes=(Index("by_a", ("a",), "z"),))
    async with open_storage(places.url(engine), declare=[odd]) as one, open_storage(places.url("redis")) as other:
        await one.commit("p", Insert("odd", "1", b"", {"z": -0.0, "a": "\ud800é\0", "m": -(1 << 63), "b": False}))
        await one.commit("p", Insert("odd", "2", b"", {"b": True, "m": (1 << 63) - 1, "a": "x" * 500, "z": 1e-320}))
        await one.commit("p", Patch("odd", "1", {"a": None, "z": 0.1 + 0.2}))
        await one.commit("p", Patch("odd", "1", {"a": "last"}))
        await copy_storage(one, other)
        async with open_storage(places.url("sqlite")) as third:
            await copy_storage(other, third)
            for kernel in (other, third):
                for key in ("1", "2"):
                    copy, original = await kernel.get("p", "odd", key), await one.get("p", "odd", key)
                    assert copy is not None
                    assert original is not None
                    assert list(copy.fields.items()) == list(original.fields.items())
            async with _transfer(one).reading() as here, _transfer(third).reading() as there:
                assert (await digests_of(here)).differing(await digests_of(there)) == []
