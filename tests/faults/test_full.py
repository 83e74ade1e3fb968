"""A full disk or server: reads, deletes and releases work; writes are refused until there is space again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from keelbolt.errors import StorageFull
from keelbolt.kernel import (
    Append,
    Attach,
    Collection,
    Delete,
    Detach,
    Draft,
    Drop,
    Enqueue,
    Index,
    Insert,
    Kernel,
    Put,
    Query,
    Replace,
    Trim,
    open_storage,
)
from keelbolt.kernel.sqlite import SQLiteKernel
from keelbolt.testing.valkey import own_valkey
from tests.faults.conftest import Figures
from tests.faults.small_disk import MEGABYTE, CannotMount, SmallDisk, mounted

PARTITION = "full"
FAMILIES = (Collection("doc", fields={"number": int}, indexes=(Index("by_number", order="number"),)),)
DOCS = 300
BODY = b"x" * 2000
SMALL_BLOB = b"blob" * 1000
SMALL_DIGEST = sha256(SMALL_BLOB).hexdigest()
RESUME_SECONDS = 5.0


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[SmallDisk]:
    with contextlib.ExitStack() as stack:
        try:
            disk = stack.enter_context(mounted(place, megabytes))
        except CannotMount as refused:
            pytest.skip(str(refused))
        yield disk


async def seed(kernel: Kernel) -> None:
    for start in range(0, DOCS, 50):
        numbers = range(start, start + 50)
        await kernel.commit(
            PARTITION,
            *(Insert("doc", f"{number}", BODY, {"number": number}) for number in numbers),
            *(Enqueue("queue", f"{number}") for number in numbers),
        )
    await kernel.commit(PARTITION, Append("log", "s", tuple(Draft("a", BODY) for _ in range(DOCS))))
    blob = await kernel.stage_blob(PARTITION, SMALL_BLOB)
    await kernel.commit(PARTITION, Attach(blob.digest, "holder"))


async def write_until_full(kernel: Kernel) -> int:
    """Return how many entries were acknowledged before the disk was full."""
    for number in range(2000):
        try:
            await kernel.commit(PARTITION, Append("more", "s", (Draft("a", BODY * 8),)), Put("doc", "more", BODY))
        except StorageFull:
            return number
    raise AssertionError("the disk does not get full")


async def writes_again(kernel: Kernel, within: float) -> float:
    """Return the seconds until writes work again."""
    began = time.monotonic()
    while True:
        try:
            await kernel.commit(PARTITION, Append("more", "s", (Draft("a", BODY * 8),)), Put("doc", "more", BODY))
        except StorageFull:
            assert time.monotonic() - began < within, "there is space, and writing is still refused"
            await asyncio.sleep(0.1)
        else:
            return time.monotonic() - began


async def assert_reads(kernel: Kernel, docs: int) -> None:
    assert len((await kernel.find(PARTITION, Query("doc", order="number", since=0), limit=1000)).records) == docs
    record = await kernel.get(PARTITION, "doc", "299")
    assert record is not None
    assert record.body == BODY
    page = await kernel.read_log(PARTITION, "log", "s", backward=True, limit=10)
    assert page.entries[0].data == BODY
    assert (await kernel.stats()).entries > 0


async def assert_whole(kernel: Kernel, acknowledged: int) -> None:
    """Check that all acknowledged commits are stored, and none partially."""
    record = await kernel.get(PARTITION, "doc", "more")
    head = (await kernel.log_state(PARTITION, "more", "s")).head
    assert head == (record.version if record else 0) == acknowledged
    assert [problem async for problem in kernel.check()] == []


async def test_a_full_disk_refuses_only_writes(tmp_path: Path, figures: Figures) -> None:
    """Writes raise StorageFull; reads, deletes, trims, releases and heartbeats work; recovery is automatic."""
    with small_disk(tmp_path / "disk", 64) as disk:
        async with SQLiteKernel(str(disk.place / "kernel.db"), declare=FAMILIES) as kernel:
            await seed(kernel)
            claims = await kernel.claim("queue", "w", limit=120)
            disk.fill(leave=MEGABYTE)
            acknowledged = await write_until_full(kernel)
            health = await kernel.health()
            assert (health.reads, health.writes) == (True, False)
            await assert_reads(kernel, DOCS)
            for number in range(100):
                await kernel.commit(PARTITION, Delete("doc", f"{number}"), claims[number].complete())
            for number in range(100, 110):
                await kernel.commit(PARTITION, claims[number].release())
            await kernel.commit(PARTITION, claims[110].bury("no space"))
            await kernel.commit(PARTITION, Trim("log", "s", DOCS // 2))
            await kernel.commit(PARTITION, Detach(SMALL_DIGEST, "holder"))
            await kernel.heartbeat("w")
            await kernel.sweep()
            assert await kernel.retire("w") == 120 - 111
            with pytest.raises(StorageFull) as refusal:
                await kernel.commit(PARTITION, Put("doc", "new", BODY))
            assert refusal.value.retryable
            await assert_reads(kernel, DOCS - 100)
            await assert_whole(kernel, acknowledged)
            disk.empty()
            resumed = await writes_again(kernel, RESUME_SECONDS)
            await assert_whole(kernel, acknowledged + 1)
            assert (await kernel.health()).writes
    figures("full disk", acknowledged_before=acknowledged, deletes_and_releases=113, s_until_writing_again=resumed)


async def test_deletes_free_space_on_a_full_disk(tmp_path: Path, figures: Figures) -> None:
    """If the database itself fills the disk, deletes are enough: its file shrinks, and writes resume."""
    with small_disk(tmp_path / "disk", 96) as disk:
        path = disk.place / "kernel.db"
        async with SQLiteKernel(str(path), declare=FAMILIES) as kernel:
            written = 0
            with contextlib.suppress(StorageFull):
                while True:
                    await kernel.commit(PARTITION, Append("log", f"{written}", (Draft("a", BODY * 50),)))
                    written += 1
            size = path.stat().st_size
            for number in range(written):
                await kernel.commit(PARTITION, Drop("log", f"{number}"))
            resumed = await writes_again(kernel, 60.0)
            assert path.stat().st_size < size
            assert [problem async for problem in kernel.check()] == []
    figures("full disk, filled by the database", MB_full=size // MEGABYTE, s_until_writing_again=resumed)


async def test_a_full_disk_without_a_reserve(tmp_path: Path, figures: Figures) -> None:
    """On a disk too small for a reserve, writes raise StorageFull until there is space, and reads work."""
    with small_disk(tmp_path / "disk", 24) as disk:
        async with SQLiteKernel(str(disk.place / "kernel.db"), declare=FAMILIES) as kernel:
            await seed(kernel)
            disk.fill()
            acknowledged = await write_until_full(kernel)
            await assert_reads(kernel, DOCS)
            await assert_whole(kernel, acknowledged)
            disk.empty()
            resumed = await writes_again(kernel, RESUME_SECONDS)
            await assert_whole(kernel, acknowledged + 1)
    figures("full disk, no reserve", acknowledged_before=acknowledged, s_until_writing_again=resumed)


async def test_several_storages_on_a_full_disk(tmp_path: Path, figures: Figures) -> None:
    """Every storage on the file detects the full disk, and resumes when there is space."""
    with small_disk(tmp_path / "disk", 64) as disk:
        path = str(disk.place / "kernel.db")
        async with SQLiteKernel(path, declare=FAMILIES) as one, SQLiteKernel(path, declare=FAMILIES) as other:
            await seed(one)
            disk.fill()
            acknowledged = await write_until_full(one)
            acknowledged += await write_until_full(other)  # without the reserve
            assert disk.free() > 8 * MEGABYTE
            await asyncio.gather(
                *(one.commit(PARTITION, Delete("doc", f"{number}")) for number in range(50)),
                *(other.commit(PARTITION, Delete("doc", f"{number}")) for number in range(50, 100)),
            )
            await assert_reads(other, DOCS - 100)
            await assert_whole(one, acknowledged)
            disk.empty()
            resumed = await writes_again(one, RESUME_SECONDS)
            resumed = max(resumed, await writes_again(other, RESUME_SECONDS))
            await assert_whole(other, acknowledged + 2)
    figures("full disk, two storages", acknowledged_before=acknowledged, s_until_writing_again=resumed)


async def test_a_full_disk_can_be_opened_to_make_space(tmp_path: Path, figures: Figures) -> None:
    """A program that is started on a full disk can read and delete."""
    with small_disk(tmp_path / "disk", 64) as disk:
        path = str(disk.place / "kernel.db")
        async with SQLiteKernel(path, declare=FAMILIES) as kernel:
            await seed(kernel)
        disk.fill()
        async with SQLiteKernel(path, declare=FAMILIES) as kernel:
            await assert_reads(kernel, DOCS)
            for number in range(100):
                await kernel.commit(PARTITION, Delete("doc", f"{number}"))
            acknowledged = await write_until_full(kernel)
            await assert_reads(kernel, DOCS - 100)
            disk.empty()
            resumed = await writes_again(kernel, RESUME_SECONDS)
            await assert_whole(kernel, acknowledged + 1)
    figures("full disk, opened on it", deletes=100, s_until_writing_again=resumed)


async def test_the_disk_fills_while_a_blob_is_staged(tmp_path: Path, figures: Figures) -> None:
    """A partial blob raises StorageFull, is not visible, and its space is freed."""
    size = 30 * MEGABYTE

    async def stream() -> AsyncIterator[bytes]:
        for number in range(size // MEGABYTE):
            yield bytes([number]) * MEGABYTE

    with small_disk(tmp_path / "disk", 80) as disk:
        async with SQLiteKernel(str(disk.place / "kernel.db"), declare=FAMILIES) as kernel:
            await seed(kernel)
            disk.fill(leave=12 * MEGABYTE)
            with pytest.raises(StorageFull):
                await kernel.stage_blob(PARTITION, stream())
            stats = await kernel.stats()
            assert (stats.blobs, stats.blob_bytes) == (1, len(SMALL_BLOB))
            await assert_reads(kernel, DOCS)
            blob = await kernel.open_blob(PARTITION, SMALL_DIGEST)
            assert await blob.read() == SMALL_BLOB
            await kernel.commit(PARTITION, Detach(blob.blob.digest, "holder"))
            assert [problem async for problem in kernel.check()] == []
            disk.empty()
            resumed = await writes_again(kernel, RESUME_SECONDS)
            staged = await kernel.stage_blob(PARTITION, stream())
            assert staged.size == size
            await kernel.commit(PARTITION, Attach(staged.digest, "holder"))
            assert len(await (await kernel.open_blob(PARTITION, staged.digest)).read()) == size
    figures("full disk while staging a blob", s_until_writing_again=resumed)


async def test_a_full_valkey_lets_the_same_commits_pass(figures: Figures) -> None:
    """Writes are refused; deletes, and completing work with its record and entry, are accepted."""
    with own_valkey(settings={"maxmemory": "24mb", "maxmemory-policy": "noeviction"}) as server:
        async with open_storage(server.url, declare=[Collection("doc")]) as kernel:
            await kernel.commit("p", Enqueue("jobs", "a"), Insert("doc", "state", b"running"))
            (claim,) = await kernel.claim("jobs", "w")
            written = 0
            with contextlib.suppress(StorageFull):
                for number in range(2000):
                    await kernel.commit("p", Insert("doc", f"k{number}", b"x" * 50_000))
                    written += 1
            assert written < 2000
            entry = Append("log", "s", (Draft("end", b"done"),))
            await kernel.commit("p", Replace("doc", "state", 1, b"done"), entry, claim.complete())
            assert await kernel.work("p", "jobs", "a") is None
            with pytest.raises(StorageFull):
                await kernel.commit("p", Put("doc", "state", b"again"))
            for number in range(min(written, 50)):
                await kernel.commit("p", Delete("doc", f"k{number}"))
            await kernel.commit("p", Put("doc", "state", b"again"))
    figures("full valkey", acknowledged_before=written)
