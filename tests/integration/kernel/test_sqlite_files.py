"""SQLite files over their life: shared, reopened, checkpointed, redeclared, swept, inspected and damaged."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import CommitRefused, NoIndex, StorageBusy, StorageCorrupt
from keelbolt.kernel import (
    Append,
    Attach,
    Bury,
    Collection,
    Delete,
    Detach,
    Draft,
    Drop,
    Enqueue,
    Fence,
    Index,
    Insert,
    Kernel,
    LogTopic,
    Patch,
    Problem,
    Put,
    Query,
    QueueTopic,
    Swept,
    Trim,
    Version,
    Wiped,
    open_storage,
)
from keelbolt.kernel.blobs import CHUNK_BYTES, STAGED_SECONDS
from keelbolt.kernel.records import Scalar
from keelbolt.kernel.sqlite import SQLiteKernel, schema
from keelbolt.kernel.sqlite.connection import WAL_BYTES
from keelbolt.kernel.sqlite.queues import WIPED_ENTRIES
from keelbolt.testing.clock import FakeClock

NOTES = Collection(
    "note",
    {"state": str, "rank": int},
    (Index("by_key"), Index("by_rank", ("state",), "rank")),
    counters=((), ("state",)),
)
BRIEF = Collection("brief", {"rank": int}, (Index("by_rank", (), "rank"),), expiring=True)
OPEN = Query("note", {"state": "open"}, "rank")
ENTRY = Draft("made", b"")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.db"


def kernel_of(path: Path, *, clock: FakeClock | None = None) -> SQLiteKernel:
    return SQLiteKernel(str(path), declare=[NOTES, BRIEF], clock=clock)


def sql(path: Path, statement: str, *values: Any) -> list[Any]:
    """Run SQL on the file, as another program would."""
    with closing(sqlite3.connect(path, timeout=10)) as connection, connection:
        return connection.execute(statement, values).fetchall()


async def fill(kernel: Kernel, count: int = 30) -> None:
    for number in range(count):
        state = "open" if number % 3 else "done"
        await kernel.commit("p", Put("note", f"k{number:03}", b"%d" % number, {"state": state, "rank": number}))


async def keys(kernel: Kernel, query: Query) -> list[str]:
    return [record.key for record in (await kernel.find("p", query, limit=1000)).records]


async def problems(kernel: Kernel) -> list[Problem]:
    return [problem async for problem in kernel.check()]


# ----------------------------------------------------------------------------------------- several kernels on one file


async def test_two_kernels_of_one_process_share_a_file(path: Path) -> None:
    """Commits of one are visible to the other and its checks, and both notify each other."""
    async with kernel_of(path) as one, kernel_of(path) as other:
        await asyncio.gather(
            *(kernel.commit("p", Append("log", "a", (ENTRY,))) for _ in range(50) for kernel in (one, other))
        )
        page = await other.read_log("p", "log", "a")
        assert [entry.seq for entry in page.entries] == list(range(1, 101))
        assert page == await one.read_log("p", "log", "a")

        await one.commit("p", Insert("note", "a", b"1", {"state": "open", "rank": 1}))
        with pytest.raises(CommitRefused) as refused:
            await other.commit("p", Insert("note", "a", b"2"))
        assert refused.value.found == 1
        await other.commit("p", Version("note", "a", 1), Patch("note", "a", {"rank": 5}))
        await one.commit("p", Version("note", "a", 2), Patch("note", "a", {"rank": 6}))
        assert await keys(other, OPEN) == ["a"]
        assert (await one.count("p", Query("note", {"state": "open"}))).value == 1

        await one.commit("p", Enqueue("jobs", "a"), Enqueue("jobs", "b"))
        (mine,), (theirs,) = await one.claim("jobs", "w1"), await other.claim("jobs", "w2")
        assert {mine.key, theirs.key} == {"a", "b"}
        with pytest.raises(CommitRefused):
            await other.commit("p", Fence("jobs", mine.key, theirs.fence))

        with other.watch(LogTopic("p", "log", "b")) as log, other.watch(QueueTopic("more")) as queue:
            await one.commit("p", Append("log", "b", (ENTRY,)), Enqueue("more", "a"))
            assert await log.wait(30)
            assert await queue.wait(30)


async def test_blobs_are_shared_too(path: Path) -> None:
    async with kernel_of(path) as one, kernel_of(path) as other:
        blob = await one.stage_blob("p", b"x" * (CHUNK_BYTES + 7))
        await other.commit("p", Attach(blob.digest, "me"))
        assert await (await other.open_blob("p", blob.digest)).read() == b"x" * (CHUNK_BYTES + 7)
        await one.commit("p", Detach(blob.digest, "me"))


async def test_a_tail_follows_another_kernel(path: Path) -> None:
    async with kernel_of(path) as writer, kernel_of(path) as reader:

        async def follow() -> list[int]:
            seqs = []
            async for entry in reader.tail("p", "log", "a"):
                seqs.append(entry.seq)
                if entry.seq == 20:
                    break
            return seqs

        tail = asyncio.create_task(follow())
        for _ in range(20):
            await writer.commit("p", Append("log", "a", (ENTRY,)))
        assert await asyncio.wait_for(tail, 30) == list(range(1, 21))


# ------------------------------------------------------------------------------------------------------------ reopening


async def test_everything_is_there_after_reopening(path: Path) -> None:
    clock = FakeClock()
    async with kernel_of(path, clock=clock) as kernel:
        await fill(kernel)
        await kernel.commit("p", Append("log", "a", (Draft("made", b"\0\xff", "once"), ENTRY, ENTRY)))
        await kernel.commit("p", Trim("log", "a", 1), Enqueue("jobs", "a", lane="l", priority=3, max_attempts=2))
        await kernel.commit("p", Put("brief", "a", b"", {"rank": 1}, 60.0), Put("brief", "b", b"", {"rank": 2}))
        blob = await kernel.stage_blob("p", b"bytes")
        await kernel.commit("p", Attach(blob.digest, "me"), Enqueue("jobs", "b"))
        (claim,) = await kernel.claim("jobs", "w")
        await kernel.commit("p", claim.bury("enough"))
        (held,) = await kernel.claim("jobs", "w")
        stats = await kernel.stats()
    beside = {found.name.removeprefix("file.db") for found in path.parent.iterdir()}
    assert beside <= {
        "",
        "-lock",
        "-turn",
        "-hints",
        "-workers",
        "-reserve",
    }  # the write-ahead log was removed; all data is in the file

    async with kernel_of(path, clock=clock) as kernel:
        assert await keys(kernel, Query("note")) == [f"k{number:03}" for number in range(30)]
        assert await keys(kernel, OPEN) == [f"k{number:03}" for number in range(30) if number % 3]
        assert (await kernel.count("p", Query("note", {"state": "done"}))).value == 10
        page = await kernel.read_log("p", "log", "a")
        assert (page.head, page.floor, [entry.seq for entry in page.entries]) == (3, 1, [2, 3])
        assert await (await kernel.open_blob("p", blob.digest)).read() == b"bytes"
        dead = await kernel.work("p", "jobs", claim.key)
        assert dead is not None
        assert (dead.state, dead.reason) == ("dead", "enough")
        await kernel.commit("p", held.fenced())  # the lease continues
        again = await kernel.stats()
        assert (again.records, again.entries, again.blobs, again.work, again.workers, again.partitions) == (
            stats.records,
            stats.entries,
            stats.blobs,
            stats.work,
            stats.workers,
            stats.partitions,
        )
        clock.advance(60)
        assert await kernel.get("p", "brief", "a") is None
        assert await kernel.get("p", "brief", "b") is not None
        # Fences keep growing across openings.
        await kernel.commit("p", Enqueue("jobs", "c", worker="w"))
        found = await kernel.work("p", "jobs", "c")
        assert found is not None
        assert found.fence > held.fence
        assert await problems(kernel) == []


async def test_leases_end_with_the_boot(path: Path) -> None:
    clock = FakeClock()
    async with kernel_of(path, clock=clock) as kernel:
        await kernel.commit("p", Enqueue("jobs", "a"))
        (claim,) = await kernel.claim("jobs", "w", lease_seconds=1_000_000)
        assert await kernel.claim("jobs", "x") == []
    clock.reboot()
    async with kernel_of(path, clock=clock) as kernel:
        (again,) = await kernel.claim("jobs", "x")
        assert (again.key, again.attempt) == ("a", 2)
        assert again.fence > claim.fence


async def test_a_stream_that_was_dropped_does_not_come_back(path: Path) -> None:
    async with kernel_of(path) as kernel:
        await kernel.commit("p", Append("log", "a", (Draft("made", b"old", "once"),)))
        await kernel.commit("p", Drop("log", "a"))
    async with kernel_of(path) as kernel:
        receipt = await kernel.commit("p", Append("log", "a", (Draft("made", b"new", "once"),)))
        assert receipt.seqs("log", "a") == (1,)
        assert [entry.data for entry in (await kernel.read_log("p", "log", "a")).entries] == [b"new"]
        assert await problems(kernel) == []


# ------------------------------------------------------------------------------------------------- the write-ahead log


async def test_the_write_ahead_log_stays_bounded(path: Path) -> None:
    """Sustained writes with an open tail and concurrent reads: readers never block the checkpoint."""
    async with kernel_of(path) as kernel, kernel_of(path) as reader:
        seen = 0

        async def follow() -> None:
            nonlocal seen
            async for entry in reader.tail("p", "log", "a"):
                seen = entry.seq
                if entry.kind == "last":
                    break

        tail = asyncio.create_task(follow())
        most = written = 0
        data = bytes(32 * 1024)
        while written < 12 * WAL_BYTES:
            await asyncio.gather(*(kernel.commit("p", Append("log", "a", (Draft("made", data),))) for _ in range(32)))
            await reader.read_log("p", "log", "a", limit=5)
            written += 32 * len(data)
            most = max(most, Path(f"{path}-wal").stat().st_size)
        receipt = await kernel.commit("p", Append("log", "a", (Draft("last", b""),)))
        (head,) = receipt.seqs("log", "a")
        await asyncio.wait_for(tail, 60)
        assert seen == head
        # The largest batch may exceed the limit, once before and once during the checkpoint.
        assert most <= 3 * WAL_BYTES


# --------------------------------------------------------------------------------------------------------- declarations


async def declared(path: Path, collection: Collection) -> Kernel:
    kernel = open_storage(f"sqlite:///{path}", declare=[collection])
    await kernel.open()
    return kernel


async def test_the_file_shrinks_while_it_is_idle(path: Path) -> None:
    """Deleted space is returned to the disk, except 1 MiB, also with a second kernel; the other data is intact."""
    body = bytes(20_000)
    async with kernel_of(path) as kernel, kernel_of(path) as other:
        for start in range(0, 500, 50):
            await kernel.commit(
                "p", *(Put("note", f"k{n:03}", body, {"state": "open", "rank": n}) for n in range(start, start + 50))
            )
        for start in range(0, 500, 50):
            await kernel.commit("p", *(Delete("note", f"k{n:03}") for n in range(start, start + 50) if n % 10))
        assert (await kernel.stats()).bytes > 10_000_000
        async with asyncio.timeout(60):
            while path.stat().st_size > 2_500_000:  # noqa: ASYNC110 - 50 records of 20,000 bytes, and 1 MiB
                await asyncio.sleep(0.05)
        assert len((await other.find("p", OPEN, limit=100)).records) == 50
        await other.commit("p", Put("note", "new", body, {"state": "open", "rank": 0}))
        assert [problem async for problem in kernel.check()] == []


async def test_a_scrub_reports_a_reader_that_keeps_deleted_data_in_the_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a reader needs the log, scrub raises StorageBusy and writers continue; later, scrub empties the log."""
    monkeypatch.setattr(schema, "SCRUB_SECONDS", 1.0)
    log = Path(f"{path}-wal")
    async with kernel_of(path) as kernel:
        await kernel.commit("p", Put("note", "secret", b"canary" * 50))
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM record").fetchone()
            await kernel.commit("p", Delete("note", "secret"))
            scrubbing = asyncio.create_task(kernel.scrub())
            await kernel.commit("p", Put("note", "other", b""))
            with pytest.raises(StorageBusy, match="write-ahead log"):
                await scrubbing
            assert b"canary" in log.read_bytes()
        await kernel.scrub()
        assert not log.stat().st_size
        assert b"canary" not in path.read_bytes()


async def test_a_changed_declaration_rebuilds_indexes_and_counters(path: Path) -> None:
    async with kernel_of(path) as kernel:
        await fill(kernel)
        await kernel.commit("q", Put("note", "other", b"", {"state": "open", "rank": 7}))
    other = Collection(
        "note",
        {"state": str, "rank": int, "new": bool},
        (Index("by_rank_alone", (), "rank"), Index("by_state", ("state",))),
        counters=(("rank",), ("new",)),
    )
    async with open_storage(f"sqlite:///{path}", declare=[other]) as kernel:
        assert await keys(kernel, Query("note", order="rank", since=3, until=6)) == ["k003", "k004", "k005"]
        assert await keys(kernel, Query("note", {"state": "done"})) == [f"k{number:03}" for number in range(0, 30, 3)]
        assert (await kernel.count("p", Query("note", {"rank": 7}))).value == 1
        assert (await kernel.count("p", Query("note", {"new": None}))).value == 30
        assert (await kernel.count("q", Query("note", {"new": None}))).value == 1
        with pytest.raises(NoIndex):
            await kernel.find("p", OPEN)
        assert await problems(kernel) == []
    # And back again.
    async with kernel_of(path) as kernel:
        assert len(await keys(kernel, OPEN)) == 20
        assert (await kernel.count("p", Query("note"))).value == 30
        await kernel.commit("p", Delete("note", "k001"))
        assert (await kernel.count("p", Query("note"))).value == 29
        assert await problems(kernel) == []


async def test_many_records_are_rebuilt_in_parts(path: Path) -> None:
    plain = Collection("note", {"rank": int})
    async with open_storage(f"sqlite:///{path}", declare=[plain], durability="relaxed") as kernel:
        for start in range(0, 2500, 500):
            await kernel.commit(
                "p", *(Put("note", f"k{n:05}", b"", {"rank": n % 7}) for n in range(start, start + 500))
            )
    ranked = Collection("note", {"rank": int}, (Index("by_rank", ("rank",)),), counters=((), ("rank",)))
    async with open_storage(f"sqlite:///{path}", declare=[ranked]) as kernel:
        assert (await kernel.count("p", Query("note"))).value == 2500
        for rank in range(7):
            expected = [f"k{n:05}" for n in range(2500) if n % 7 == rank]
            assert await keys(kernel, Query("note", {"rank": rank})) == expected
            assert (await kernel.count("p", Query("note", {"rank": rank}))).value == len(expected)
        assert await problems(kernel) == []


async def test_declared_collections_can_be_read_without_a_declaration(path: Path) -> None:
    async with kernel_of(path) as kernel:
        await fill(kernel, 3)
    async with open_storage(f"sqlite:///{path}") as kernel:
        assert await keys(kernel, Query("note")) == ["k000", "k001", "k002"]


async def test_a_kernel_with_another_declaration_keeps_the_indexes_whole(path: Path) -> None:
    """The last declaration applies to all: kernels with another declaration write the indexes of the file."""
    async with kernel_of(path) as old:
        await fill(old, 3)
        ranked = Collection("note", {"state": str, "rank": int}, (Index("by_rank", (), "rank"),))
        async with open_storage(f"sqlite:///{path}", declare=[ranked]) as new:
            await old.commit("p", Put("note", "late", b"", {"state": "open", "rank": 9}))
            await old.commit("p", Delete("note", "k000"))
            assert await keys(new, Query("note", order="rank")) == ["k001", "k002", "late"]
            assert await problems(new) == []


# ---------------------------------------------------------------------------------------------------------------- sweep


async def test_one_step_of_a_wipe_removes_few_records_if_their_logs_are_long(path: Path) -> None:
    """Other commits wait for each step."""
    async with kernel_of(path) as kernel:
        drafts = tuple([Draft("event", b"")] * (WIPED_ENTRIES // 2))
        for number in range(5):
            await kernel.commit(
                "p", Put("brief", f"k{number}", b"", {"rank": number}), Append("log", f"k{number}", drafts)
            )
        wiped = [await kernel.wipe("p", Wiped("brief", logs=("log",))) for _ in range(4)]
        assert wiped == [2, 2, 1, 0]
        assert sql(path, "SELECT count(*) FROM entry") == [(0,)]


async def test_a_sweep_removes_expired_data_and_nothing_else(path: Path) -> None:
    clock = FakeClock()
    async with kernel_of(path, clock=clock) as kernel:
        for number in range(10):
            await kernel.commit("p", Put("brief", f"k{number}", b"", {"rank": number}, 60.0 if number < 7 else 120.0))
        await kernel.commit("p", Put("brief", "stays", b"", {"rank": 99}))
        kept = await kernel.stage_blob("p", b"kept")
        await kernel.commit("p", Attach(kept.digest, "me"))
        staged = await kernel.stage_blob("p", b"staged" * CHUNK_BYTES)
        await kernel.commit("p", Enqueue("jobs", "a"))
        (claim,) = await kernel.claim("jobs", "holder", lease_seconds=10)
        await kernel.heartbeat("idle", lease_seconds=10)

        assert await kernel.sweep() == Swept(0, 0, 0)
        clock.advance(60)
        assert await kernel.sweep(limit=5) == Swept(5, 0, 1)  # a worker that holds items is kept
        assert await kernel.sweep(limit=5) == Swept(2, 0, 0)
        assert sql(path, "SELECT count(*) FROM record") == [(4,)]
        assert sql(path, "SELECT count(*) FROM record_index") == [(4,)]
        clock.advance(STAGED_SECONDS)
        assert await kernel.sweep() == Swept(3, 1, 0)
        assert sql(path, "SELECT DISTINCT blob.digest FROM blob_chunk JOIN blob ON blob.id = blob") == [(kept.digest,)]
        assert sql(path, "SELECT count(*) FROM blob_chunk") == [(1,)]
        await kernel.commit("p", Detach(kept.digest, "me"), claim.complete())
        assert await kernel.sweep() == Swept(0, 0, 1)
        clock.advance(STAGED_SECONDS)
        assert await kernel.sweep() == Swept(0, 1, 0)
        stats = await kernel.stats()
        assert (stats.records, stats.blobs, stats.workers) == ({"brief": 1}, 0, 0)
        with pytest.raises(CommitRefused, match="stage it again"):
            await kernel.commit("p", Attach(staged.digest, "me"))
        assert await problems(kernel) == []


# ---------------------------------------------------------------------------------------------------------------- stats


async def test_stats_are_what_was_written(path: Path) -> None:
    async with kernel_of(path) as kernel:
        empty = await kernel.stats()
        assert (empty.partitions, empty.records, empty.streams, empty.entries, empty.blobs) == (0, {}, 0, 0, 0)
        await fill(kernel, 12)
        await kernel.commit("q", Put("brief", "a", b"", {"rank": 1}), Append("log", "a", (ENTRY,) * 4))
        await kernel.commit("p", Append("log", "a", (ENTRY,) * 5), Append("log", "b", (ENTRY,)))
        await kernel.commit("p", Trim("log", "a", 2), *(Enqueue("jobs", f"k{number}") for number in range(5)))
        await kernel.commit("p", Enqueue("other", "later", ready_in=60.0), Delete("note", "k000"))
        await kernel.stage_blob("p", b"x" * 1000)
        await kernel.stage_blob("p", b"x" * 1000)  # the same bytes are stored once
        claims = await kernel.claim("jobs", "w", limit=2)
        await kernel.commit("p", Bury("jobs", claims[0].key, claims[0].fence, "enough"))
        stats = await kernel.stats()
        assert stats.partitions == 2
        assert stats.records == {"note": 11, "brief": 1}
        assert (stats.streams, stats.entries) == (3, 4 + 3 + 1)
        assert (stats.blobs, stats.blob_bytes) == (1, 1000)
        assert stats.work == {
            "jobs": {"waiting": 3, "held": 1, "dead": 1},
            "other": {"waiting": 1, "held": 0, "dead": 0},
        }
        assert stats.workers == 1
        assert stats.bytes >= path.stat().st_size > 0
        assert await kernel.partitions() == ["p", "q"]
        assert await kernel.partitions(after="p") == ["q"]
        assert await problems(kernel) == []


# ---------------------------------------------------------------------------------------------------------------- check


@asynccontextmanager
async def filled(path: Path) -> AsyncIterator[Kernel]:
    async with kernel_of(path) as kernel:
        await fill(kernel, 9)
        await kernel.commit(
            "p", Append("log", "a", (Draft("made", b"one"), Draft("made", b"two"), Draft("made", b"3")))
        )
        blob = await kernel.stage_blob("p", b"some bytes")
        await kernel.commit("p", Attach(blob.digest, "me"))
        assert await problems(kernel) == []
        yield kernel


PLANTED: dict[str, tuple[str, Callable[[list[Problem]], bool]]] = {
    "an index row is gone": (
        "DELETE FROM record_index WHERE rowid_of_k004",
        lambda found: any("by_" in problem.where + problem.what for problem in found),
    ),
    "an index row is elsewhere": (
        "UPDATE record_index SET entry = entry || x'00' WHERE rowid_of_k004",
        lambda found: Problem("record note/k004", "its entry is missing or wrong in index by_key") in found,
    ),
    "a counter counts too much": (
        "UPDATE counter SET total = total + 1 WHERE total > 0",
        lambda found: {problem.where for problem in found} == {"counter note/all", "counter note/state"},
    ),
    "a counter counts in another group": (
        "UPDATE counter SET total = 9 - total WHERE name % 8 = 1",
        lambda found: found == [Problem("counter note/state", "2 of its totals differ from the records")],
    ),
    "an entry is gone from the middle": (
        "DELETE FROM entry WHERE seq = 2",
        lambda found: found == [Problem("log log/a", "entry 2 is missing")],
    ),
    "the last entry is gone": (
        "DELETE FROM entry WHERE seq = 3",
        lambda found: found == [Problem("log log/a", "it ends at 2 instead of 3")],
    ),
    "an entry was changed": (
        "UPDATE entry SET data = x'00' WHERE seq = 2",
        lambda found: found == [Problem("log log/a", "entry 2: its checksum is wrong")],
    ),
    "an entry too many": (
        "INSERT INTO entry SELECT stream, 4, at, crc, kind, data FROM entry WHERE seq = 3",
        lambda found: any("4" in problem.what for problem in found),
    ),
    "a body was changed": (
        "UPDATE record SET body = x'00' WHERE key = 'k004'",
        lambda found: found == [Problem("record note/k004", "its checksum is wrong")],
    ),
    "a version was changed": (
        "UPDATE record SET version = 7 WHERE key = 'k004'",
        lambda found: found == [Problem("record note/k004", "its checksum is wrong")],
    ),
    "a record is gone": (
        "DELETE FROM record WHERE key = 'k004'",
        lambda found: len(found) > 0,
    ),
    "a chunk was changed": (
        "UPDATE blob_chunk SET data = CAST('X' || substr(data, 2) AS BLOB)",
        lambda found: [problem.what for problem in found] == ["chunk 0: its checksum is wrong"],
    ),
    "a chunk is gone": (
        "DELETE FROM blob_chunk",
        lambda found: [problem.what for problem in found] == ["its chunks are missing, or too many"],
    ),
}


@pytest.mark.parametrize("name", PLANTED)
async def test_a_check_finds_each_kind_of_damage(path: Path, name: str) -> None:
    statement, reported = PLANTED[name]
    async with filled(path) as kernel:
        where = "name % 8 = 0 AND record = (SELECT id FROM record WHERE key = 'k004')"
        sql(path, statement.replace("rowid_of_k004", where))
        found = await problems(kernel)
        assert found
        assert reported(found), found


async def test_damage_is_noticed_by_readers_too(path: Path) -> None:
    async with filled(path) as kernel:
        sql(path, "UPDATE record SET fields = '{\"rank\":5}' WHERE key = 'k004'")
        sql(path, "UPDATE entry SET kind = 'other' WHERE seq = 2")
        with pytest.raises(StorageCorrupt, match="keelbolt storage check"):
            await kernel.get("p", "note", "k004")
        with pytest.raises(StorageCorrupt):
            await kernel.find("p", Query("note"))
        with pytest.raises(StorageCorrupt):
            await kernel.commit("p", Patch("note", "k004", {"rank": 1}))
        with pytest.raises(StorageCorrupt):
            await kernel.read_log("p", "log", "a")
        assert (await kernel.get("p", "note", "k005")) is not None
        await kernel.commit("p", Put("note", "k005", b"written"))


@pytest.mark.parametrize("text", ["'{\"ra'", "'[1]'", "CAST(x'ff41' AS TEXT)", "NULL + 7", "x'00'"])
async def test_a_check_survives_unreadable_fields(path: Path, text: str) -> None:
    """The check continues to the end and reports the other problems as well."""
    async with filled(path) as kernel:
        sql(path, f"UPDATE record SET fields = ifnull({text}, 7) WHERE key = 'k004'")
        sql(path, "UPDATE record SET body = x'00' WHERE key = 'k007'")
        found = {problem.where for problem in await problems(kernel)}
        assert {"record note/k004", "record note/k007"} <= found


# ------------------------------------------------------------------------------------------------------------ SQL shell


async def test_the_log_view_is_readable(path: Path) -> None:
    async with kernel_of(path, clock=FakeClock()) as kernel:
        await kernel.commit("acme", Append("events", "task-1", (Draft("made", b'{"a":1}'), Draft("done", b"{}"))))
    rows = sql(path, "SELECT partition, log, stream, seq, at, kind, CAST(data AS TEXT) FROM log ORDER BY stream, seq")
    assert rows == [
        ("acme", "events", "task-1", 1, "2026-01-01 00:00:00.000", "made", '{"a":1}'),
        ("acme", "events", "task-1", 2, "2026-01-01 00:00:00.000", "done", "{}"),
    ]


async def test_every_value_survives_in_the_file(path: Path) -> None:
    """NUL, NaN, lone surrogates in fields, long keys, ten megabytes."""
    fields: dict[str, Scalar] = {"state": "\ud800 \0 é", "rank": -(1 << 63)}
    bodies = {"a": b"\0", "k" * 4000: b'{"x": NaN, "y": "\\ud800"}', "世界": bytes(10_000_000)}
    async with kernel_of(path) as kernel:
        for key, body in bodies.items():
            await kernel.commit("p", Put("note", key, body, fields))
    async with kernel_of(path) as kernel:
        for key, body in bodies.items():
            record = await kernel.get("p", "note", key)
            assert record is not None
            assert (record.body, record.fields) == (body, fields)
        query = Query("note", {"state": fields["state"]}, "rank")
        assert sorted(await keys(kernel, query)) == sorted(bodies)
        assert (await kernel.count("p", Query("note", {"state": fields["state"]}))).value == 3
        await kernel.commit("p", *(Delete("note", key) for key in bodies))
        assert await keys(kernel, query) == []
        assert await problems(kernel) == []
