"""Bytes of turns: conduits, lines, rewriting, streams."""

from __future__ import annotations

import asyncio
import io
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import TurnStorageNotFound
from keelbolt.turns.durable import DurableStorage, durable_storage
from keelbolt.turns.in_memory import InMemoryMediaReader, InMemoryMediaStore, InMemorySpoolStore
from keelbolt.turns.readers import STRETCH_BYTES, BlobInfo, is_media_reader, is_range_reader
from tests.integration.turns.stage import Calls, Turn, endless, image, message, tool_call

LINES: list[tuple[bytes, list[str]]] = [
    (b"", []),
    (b"a", ["a"]),
    (b"\n", ["", ""]),
    (b"a\nb\n", ["a", "b", ""]),
    (b"a\r\nb\r\n", ["a\r", "b\r", ""]),
    ("a\x0bb\x85c\u2028d\u0085e".encode(), ["a\x0bb\x85c\u2028d\u0085e"]),
    ("é\n🐈\n\ufeff".encode(), ["é", "🐈", "\ufeff"]),
    (b"\xff\xfe\nok\xe2\x82\n\x80", ["\ufffd\ufffd", "ok\ufffd", "\ufffd"]),
]


async def as_stream(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("eager", [True, False])
async def test_check_34_lines_are_the_same_everywhere(url: str, eager: bool) -> None:
    """Short texts and texts of several chunks have the same lines in memory and stored, read whole and by index."""
    memory = InMemorySpoolStore()
    long = [(b"x" * (STRETCH_BYTES - 3) + data + b"\n" + b"y" * STRETCH_BYTES, None) for data, _ in LINES]
    async with durable_storage(url, eager_bytes=10 * STRETCH_BYTES if eager else 0) as storage:
        store = storage.blobs.spool(Turn())
        for data, expected in [*LINES, *long]:
            stored, held = await store.write("text", data), await memory.write("text", data)
            count = await held.line_count()
            everything = [await held.line(index) for index in range(count)]
            assert expected is None or everything == expected
            assert is_range_reader(stored)
            assert await stored.line_count() == count
            assert [await stored.line(index) for index in range(-1, count + 1)] == [None, *everything, None]
            assert await stored.lines(1, count) == await held.lines(1, count) == everything[1:]
            assert await stored.byte_length() == await held.byte_length() == len(data)
            assert await stored.read_all() == await held.read_all() == data.decode("utf-8", "replace")
            assert b"".join([piece async for piece in stored.stream(2, 5)]) == data[2:5]
            assert b"".join([piece async for piece in held.stream(2, 5)]) == data[2:5]


@pytest.mark.parametrize("kind", ["media", "spool"])
async def test_check_35_existing_readers_still_work(url: str, kind: str) -> None:
    """Rewriting or deleting an id does not affect existing readers; delete returns whether it existed."""
    async with durable_storage(url) as storage:
        durable = getattr(storage.blobs, kind)(Turn())
        in_memory: Any = InMemoryMediaStore() if kind == "media" else InMemorySpoolStore()
        for store in (durable, in_memory):
            assert await store.read("x") is None
            old = await store.write("x", "old")
            new = await store.write("x", as_stream(b"new" * 300_000, 1000))
            await store.write("y", io.BytesIO(b"file"))
            assert b"".join([piece async for piece in old.stream()]) == b"old"
            again = await store.read("x")
            assert await store.delete("x") is True
            assert await store.delete("x") is False
            assert await store.read("x") is None
            for reader in (new, again):
                assert b"".join([piece async for piece in reader.stream()]) == b"new" * 300_000
            assert [(info.id, info.size) async for info in store.list()] == [("y", 4)]
            assert [info async for info in store.list("z")] == []


async def test_ids_of_bytes_belong_to_their_turn(storage: DurableStorage) -> None:
    """The same id in two turns names two blobs; a third turn gets the last one."""
    for number, turn in enumerate(("a", "b")):
        await storage.blobs.spool(Turn(turn)).write("call_0", f"of {turn} {number}")
    assert await (await storage.blobs.spool(Turn("a")).read("call_0")).read_all() == "of a 0"  # type: ignore[union-attr]
    assert await (await storage.blobs.spool(Turn("c")).read("call_0")).read_all() == "of b 1"  # type: ignore[union-attr]
    found: list[BlobInfo] = [info async for info in storage.blobs.spool(Turn("c")).list()]
    assert [(info.id, info.size) for info in found] == [("call_0", 6)]
    assert await storage.blobs.media(Turn("a")).read("call_0") is None


async def test_check_36_a_failing_stream_stores_nothing(storage: DurableStorage) -> None:
    """A failing stream creates no entry and does not change an existing one."""
    for store in (storage.blobs.spool(Turn()), storage.blobs.media(Turn()), InMemorySpoolStore()):
        with pytest.raises(ConnectionError):
            await store.write("new", endless(b"x" * 100_000, fail_after=7))
        assert await store.read("new") is None
        await store.write("old", "as before")
        with pytest.raises(ConnectionError):
            await store.write("old", endless(b"x" * 100_000, fail_after=7))
        reader: Any = await store.read("old")
        assert b"".join([piece async for piece in reader.stream()]) == b"as before"


def test_check_36_memory_stays_flat(tmp_path: Path) -> None:
    """Storing and reading 200 MiB of lines, ten of them by number, needs at most 64 MiB, in another process."""
    child = Path(__file__).with_name("large_text.py")
    done = subprocess.run(
        [sys.executable, str(child), f"sqlite:///{tmp_path}/large.db", "200"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 64 * 1024 * 1024, done.stdout


async def test_check_37_media_keeps_its_labels(storage: DurableStorage) -> None:
    """Writing metadata never reads bytes; trust tier, hazard and stash are stored."""

    class Untouchable(InMemoryMediaReader):
        def stream(self) -> AsyncIterator[bytes]:
            raise AssertionError("the content must not be read")

    caption = {"value": "a cat", "trust_tier": "third-party-public", "derived_from_media": "i0"}
    fields = {"kind": "document", "source": "https://example.org", "stash": {"caption": caption}}
    assert image(Untouchable(b""), **fields).to_json()["trustTier"] == "third-party-private"
    calls = Calls(storage.callbacks(), Turn())
    await calls.store_message(message(attachments=[image(InMemoryMediaReader(b"x"), **fields)]))
    [found] = (await calls.fetch("message"))[0].attachments
    assert found.to_json() == image(Untouchable(b""), **fields).to_json()
    assert is_media_reader(found.reader)


async def test_check_42_bytes_of_another_tenant_are_not_visible(storage: DurableStorage) -> None:
    """They can't be read by id or descriptor: a reader of another tenant is copied, never referenced."""
    theirs = await storage.blobs.media(Turn(tenant="other")).write("x", b"secret")
    assert await storage.blobs.media(Turn()).read("x") is None
    calls = Calls(storage.callbacks(), Turn())
    await calls.store_tool_call(tool_call(results=image(theirs)))
    await storage.erase("other")
    [found] = await calls.fetch("tool_call")
    assert await found.results.as_bytes() == b"secret", "a copy of our own"


async def test_a_record_that_refers_to_reaped_bytes_is_refused(url: str) -> None:
    async with durable_storage(url) as storage:
        reader = await storage.blobs.media(Turn()).write("x", b"bytes")
        reader.bytes = type(reader.bytes)("0" * 64, 5)
        calls = Calls(storage.callbacks(), Turn())
        with pytest.raises(TurnStorageNotFound, match="were removed"):
            await calls.store_tool_call(tool_call(results=image(reader)))
        assert await calls.ids("tool_call") == []


async def test_many_writers_of_one_id(storage: DurableStorage) -> None:
    """Each writer gets a reader of its own bytes; the stored entry is that of one writer."""
    store = storage.blobs.spool(Turn())
    texts = [f"text {random.random()}" for _ in range(10)]
    readers = await asyncio.gather(*(store.write("x", text) for text in texts))
    assert [await reader.read_all() for reader in readers] == texts
    assert await (await store.read("x")).read_all() in texts  # type: ignore[union-attr]
