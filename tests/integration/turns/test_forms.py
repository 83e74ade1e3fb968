"""Older and newer storage formats, and damaged data."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import TurnStorageCorrupt, TurnStorageSchema
from keelbolt.kernel import Kernel, Put, Replace
from keelbolt.turns.durable import DurableStorage, durable_storage
from keelbolt.turns.durable.families import FORMAT_PARTITION, FORMATS, STREAMS
from keelbolt.turns.durable.records import FORMAT, UPGRADES
from keelbolt.turns.durable.scope import partition_of
from keelbolt.turns.in_memory import InMemoryMediaReader, InMemorySpoolReader
from keelbolt.turns.inspection import TurnInspection
from keelbolt.turns.primitives import SpooledArtifact
from tests.integration.turns.stage import Calls, Turn, image, message, retrievable


async def test_check_47_formats(lasting_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older format is upgraded when it is opened; a newer one is refused."""
    async with durable_storage(lasting_url) as storage:
        await Calls(storage.callbacks(), Turn()).store_message(message())
    steps: list[Kernel] = []

    async def step(kernel: Kernel) -> None:
        steps.append(kernel)

    with monkeypatch.context() as newer:
        newer.setattr("keelbolt.turns.durable.records.FORMAT", FORMAT + 1)
        newer.setitem(UPGRADES, FORMAT, step)
        async with durable_storage(lasting_url) as storage:
            assert len(steps) == 1
            assert await storage.migrate() == []
            assert await Calls(storage.callbacks(), Turn()).ids() == ["m1"]
    with pytest.raises(TurnStorageSchema, match="newer") as raised:
        await durable_storage(lasting_url).open()
    assert raised.value.code == "E_STORAGE_SCHEMA"


async def test_threads_of_the_first_format_are_listed_by_their_last_use(lasting_url: str) -> None:
    """The clocks of this format had no times, so the time of the newest record is used; numbers continue."""
    moments = iter(range(1, 100))
    async with durable_storage(lasting_url, clock=lambda: next(moments)) as storage:
        for thread in ("late", "early"):
            await Calls(storage.callbacks(), Turn(thread=thread)).store_message(message())
        await Calls(storage.callbacks(), Turn(thread="late")).store_message(message("m2"))
        partition, kernel = partition_of("acme"), storage.kernel
        for owner in ("thread/late", "thread/early"):
            found = await kernel.get(partition, STREAMS, owner)
            assert found is not None
            await kernel.commit(partition, Replace(STREAMS, owner, found.version, b""))
        await kernel.commit(FORMAT_PARTITION, Put(FORMATS, "format", b'{"v":1}'))
        assert await storage.migrate() == [2]
        listed = (await TurnInspection(kernel, "acme").threads())["threads"]
        assert [thread["id"] for thread in listed] == ["late", "early"]
        assert all(thread["at"].startswith("1970-01-01T00:00:") for thread in listed)
        await Calls(storage.callbacks(), Turn(thread="early")).store_message(message("m3"))
        assert await Calls(storage.callbacks(), Turn(thread="early")).ids() == ["m1", "m3"]
        listed = (await TurnInspection(kernel, "acme").threads())["threads"]
        assert [thread["id"] for thread in listed] == ["early", "late"]


async def test_check_47_damage_is_detected(storage: DurableStorage, calls: Calls) -> None:
    """A damaged record raises TurnStorageCorrupt, a record of a newer format TurnStorageSchema."""
    await calls.store_message(message())
    [row] = [row async for row in storage.export("acme")]
    fields = {"owner": row["owner"], "seq": row["seq"]}
    for body, error in (
        (b"{", TurnStorageCorrupt),
        (b'{"v":1}', TurnStorageCorrupt),
        (b'{"v":2}', TurnStorageSchema),
    ):
        await storage.kernel.commit(partition_of("acme"), Put("turn_messages", f"{row['owner']}/m1", body, fields))
        with pytest.raises(error):
            await calls.fetch("message")


async def _store_some(url: str) -> None:
    async with durable_storage(url) as storage:
        calls = Calls(storage.callbacks(), Turn())
        await calls.store_message(message(attachments=[image(InMemoryMediaReader(b"original"))]))
        await calls.store_retrievable(retrievable("r", SpooledArtifact(InMemorySpoolReader(b"original\n" * 100_000))))


async def _read_damaged(storage: DurableStorage) -> None:
    calls = Calls(storage.callbacks(), Turn())
    [found], [text] = await calls.fetch("message"), await calls.fetch("retrievable")
    for reading in (found.attachments[0].as_bytes(), text.content.as_string()):
        with pytest.raises(TurnStorageCorrupt) as raised:
            await reading
        assert raised.value.code == "E_STORAGE_CORRUPT"


@pytest.mark.parametrize("hashed", [True, False])
async def test_check_47_tampered_bytes(lasting_url: str, monkeypatch: pytest.MonkeyPatch, hashed: bool) -> None:
    """Bytes that differ from the written ones are detected, even with forged hashes."""
    await _store_some(lasting_url)
    async with durable_storage(lasting_url) as storage:
        kernel: Any = storage.kernel
        true = kernel._blob_chunk

        async def forged(partition: str, upload: int, number: int) -> tuple[bytes, bytes]:
            data, digest = await true(partition, upload, number)
            data = bytes([data[0] ^ 1]) + data[1:]
            return data, hashlib.sha256(data).digest() if hashed else digest

        monkeypatch.setattr(kernel, "_blob_chunk", forged)
        await _read_damaged(storage)


async def test_check_47_tampered_file(tmp_path: Path) -> None:
    """Bytes and hashes that were changed in the file are detected."""
    url = f"sqlite:///{tmp_path}/file.db"
    await _store_some(url)
    with contextlib.closing(sqlite3.connect(f"{tmp_path}/file.db")) as file:
        for blob, number, data in file.execute("SELECT blob, number, data FROM blob_chunk").fetchall():
            forged = bytes([data[0] ^ 1]) + data[1:]
            file.execute(
                "UPDATE blob_chunk SET data = ?, sha256 = ? WHERE blob = ? AND number = ?",
                (forged, hashlib.sha256(forged).digest(), blob, number),
            )
        file.commit()
    async with durable_storage(url) as storage:
        await _read_damaged(storage)
