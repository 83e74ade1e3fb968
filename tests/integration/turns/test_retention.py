"""Data that reap, purge and erase remove, and data that they keep."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from pathlib import Path

import pytest

from keelbolt.errors import BlobNotFound
from keelbolt.kernel import Kernel, Query
from keelbolt.turns import DispatchContext, ExecutorHelpers, TurnInput
from keelbolt.turns.durable import DurableStorage, durable_storage
from keelbolt.turns.durable.families import COLLECTIONS
from keelbolt.turns.durable.scope import partition_of
from keelbolt.turns.in_memory import InMemorySpoolReader
from keelbolt.turns.primitives import SpooledArtifact
from tests.integration.turns.stage import MAKE, PLAIN, Calls, Turn, image, message, one_of_each, retrievable


async def test_check_46_reap_removes_unreferenced_blobs(storage: DurableStorage, calls: Calls) -> None:
    """Ten blobs of a failed iteration are removed; those of committed records stay."""
    kept = await calls.store_media_bytes("kept", b"kept")
    spool = await calls.store_retrievable_bytes("kept", "text\n" * 100_000)

    async def come_to_nothing() -> None:
        async with storage.unit_of_work(Turn()):
            for number in range(10):
                reader = await calls.store_media_bytes(f"lost{number}", b"lost" * number)
                await calls.store_message(message(f"m{number}", attachments=[image(reader)]))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await come_to_nothing()
    async with storage.unit_of_work(Turn()):
        await calls.store_message(message("m", attachments=[image(kept)]))
        await calls.store_retrievable(retrievable("r", SpooledArtifact(spool)))
    assert (await storage.reap()).blobs == 0, "not yet: a turn may still be under way"
    assert (await storage.reap(older_than=0)).blobs == 10
    assert (await storage.reap(older_than=0)).blobs == 0
    assert [info.id async for info in storage.blobs.media(Turn()).list()] == ["kept"]
    [found], [text] = await calls.fetch("message"), await calls.fetch("retrievable")
    assert await found.attachments[0].as_bytes() == b"kept"
    assert await text.content.tail(2) == ["text", ""]


async def test_records_hold_their_bytes(storage: DurableStorage, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel sweeps only bytes without a holder; a record holds its bytes, whether copied or from conduits."""
    stage = storage.kernel.stage_blob
    monkeypatch.setattr(storage.kernel, "stage_blob", functools.partial(stage, keep_seconds=0.0))
    text = SpooledArtifact(InMemorySpoolReader(b"drained\n" * 50_000))
    await calls.store_retrievable(retrievable("r", text))
    reader = await calls.store_media_bytes("x", b"bytes")
    await storage.kernel.sweep()
    await calls.store_message(message("m", attachments=[image(reader)]))
    await storage.blobs.media(Turn()).delete("x")
    await calls.mutate_message((await calls.fetch("message"))[0])
    lost = await storage.kernel.stage_blob(partition_of("acme"), b"unused")
    while (await storage.kernel.sweep()).blobs:
        pass
    with pytest.raises(BlobNotFound):
        await storage.kernel.open_blob(partition_of("acme"), lost.digest)
    [found], [spooled] = await calls.fetch("message"), await calls.fetch("retrievable")
    assert await found.attachments[0].as_bytes() == b"bytes"
    assert await spooled.content.tail(2) == ["drained", ""]


async def test_early_reaping_does_not_affect_running_turns(storage: DurableStorage, calls: Calls) -> None:
    """A record restores bytes that were reaped before it was stored, within the kernel's grace period."""
    reader = await calls.store_media_bytes("x", b"bytes")
    assert (await storage.reap(older_than=0)).blobs == 1
    await calls.store_message(message("m", attachments=[image(reader)]))
    [found] = await calls.fetch("message")
    assert await found.attachments[0].as_bytes() == b"bytes"
    await calls.delete_message("m")
    assert (await storage.purge()).records == 1


async def test_bytes_without_a_record_are_reaped(storage: DurableStorage, calls: Calls) -> None:
    """This applies to bytes of a record that existed already, or that was deleted in the unit that stored it."""
    again = Calls(storage.callbacks(), Turn("again"))
    for each in (calls, again):
        reader = await each.store_media_bytes("x", b"same")
        await each.store_message(message("m", attachments=[image(reader)]))
    await calls.store_message(message("gone"))
    await calls.delete_message("gone")
    reader = await calls.store_media_bytes("y", b"other")
    async with storage.unit_of_work(Turn()):
        await calls.store_message(message("gone", attachments=[image(reader)]))
        await calls.delete_message("gone")
    assert (await storage.reap(older_than=0)).blobs == 2
    assert [info.id async for info in storage.blobs.media(Turn()).list()] == ["x"]
    [found] = await calls.fetch("message")
    assert await found.attachments[0].as_bytes() == b"same"
    await calls.delete_message("m")
    await storage.purge()
    assert [info.id async for info in storage.blobs.media(Turn()).list()] == []


async def test_purge_removes_tombstones_with_their_bytes(storage: DurableStorage, calls: Calls) -> None:
    reader = await calls.store_media_bytes("x", b"bytes")
    for kind, make in MAKE.items():
        await calls.do("store", kind, make("x"))
        await calls.do("store", kind, make("y"))
    await calls.store_message(message("with", attachments=[image(reader)]))
    for kind in PLAIN:
        await calls.do("delete", kind, "x")
    await calls.delete_message("with")
    assert (await storage.purge(older_than=3600)).records == 0
    removed = await storage.purge(tenant="acme")
    assert (removed.records, removed.blobs) == (len(PLAIN) + 1, 1)
    assert await storage.blobs.media(Turn()).read("x") is None
    for kind in PLAIN:
        assert await calls.ids(kind) == ["y"]


async def test_erase_leaves_nothing(storage: DurableStorage) -> None:
    """Erasing a thread or tenant removes its records, tombstones and bytes. Other threads and tenants do not change."""
    here, other, stranger = (
        Calls(storage.callbacks(), turn) for turn in (Turn(), Turn(thread="other"), Turn(tenant="b"))
    )
    for calls in (here, other, stranger):
        for kind, value in one_of_each():
            await calls.do("store", kind, value)
        await calls.delete_message("m-text")
        await calls.store_media_bytes("x", b"staged")
    await storage.erase("acme", thread="thread-1")
    assert [await here.ids(kind) for kind in PLAIN if kind != "memory"] == [[]] * 4
    assert await storage.blobs.media(Turn()).read("x") is None
    assert len(await other.ids("message")) == 2
    assert len(await here.ids("memory")) == 2
    await storage.erase("acme")
    assert [row async for row in storage.export("acme")] == []
    assert await _records(storage.kernel, "acme") == 0
    assert len([row async for row in storage.export("b")]) == 17
    for kind, value in one_of_each():
        await here.do("store", kind, value)
    assert len([row async for row in storage.export("acme")]) == 18


async def _records(kernel: Kernel, tenant: str) -> int:
    count = 0
    for collection in COLLECTIONS.values():
        for owner in ("~deleted", "thread/thread-1", "thread/other", "agent/"):
            page = await kernel.find(partition_of(tenant), Query(collection, {"owner": owner}, order="seq"))
            count += len(page.records)
    return count


async def test_erase_leaves_nothing_in_the_file(tmp_path: Path) -> None:
    """After erasing a thread and then its tenant, no table has a row of them, except for bytes to be swept."""

    async def ask(ctx: DispatchContext, _helpers: ExecutorHelpers) -> None:
        await ctx.store_message(message(f"of {ctx.turn_id}"))
        await ctx.checkpoint()
        await ctx.wait_for(reason="may I?", timeout_ms=1)

    async with durable_storage(f"sqlite:///{tmp_path}/file.db") as storage:
        for turn in (
            Turn("t-a", "gone", "thread-a"),
            Turn("t-b", "gone", "thread-b"),
            Turn("t-c", "stays", "thread-a"),
        ):
            calls = Calls(storage.callbacks(), turn)
            for kind, value in one_of_each():
                await calls.do("store", kind, value)
            await calls.delete_message("m-text")
            await calls.store_media_bytes("staged", b"staged")
            given = TurnInput(system_prompt="x", turn_id=f"run-{turn.id}", stash=turn.stash.all())
            assert (await storage.runner(executor_callback=ask).run_result(given)).status == "nack"
        await storage.erase("gone", thread="thread-a")
        # Records of the agent name the turn that stored them; no other row names the thread.
        assert _rows(tmp_path / "file.db", "~turns/gone", "thread/thread-a") == {}
        assert set(_rows(tmp_path / "file.db", "~turns/gone", "thread/thread-b")) > {"record", "holding", "stream"}
        await storage.erase("gone")
        assert set(_rows(tmp_path / "file.db", "~turns/gone")) <= {"partition", "blob"}
        assert set(_rows(tmp_path / "file.db", "~turns/stays")) > {"partition", "blob"}


def _rows(file: Path, *words: str) -> dict[str, int]:
    """Return how many rows of each table contain all of these words."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {table: database.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
    found = {table: sum(all(word in repr(row) for word in words) for row in rows[table]) for table in tables}
    return {table: count for table, count in found.items() if count}
