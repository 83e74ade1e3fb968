"""SQLite removes the bytes of blobs in short transactions: they are overwritten, and other commits wait meanwhile."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

from keelbolt.kernel import Collection, Put, Scope, Swept, open_storage
from keelbolt.kernel.blobs import CHUNK_BYTES
from keelbolt.kernel.sqlite import SQLiteKernel, queues

CHUNKS = 10 * queues.REMOVED_CHUNKS


def rows(file: Path) -> tuple[int, int]:
    """Return the numbers of blobs and of chunks."""
    with sqlite3.connect(file) as connection:
        tables = ("blob", "blob_chunk")
        blobs, chunks = (connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)
    return blobs, chunks


async def expired(scope: Scope, chunks: int = CHUNKS) -> bytes:
    """Stage a blob that expires at once; return its content."""
    content = os.urandom(chunks * CHUNK_BYTES)
    await scope.stage_blob(content, keep_seconds=0.0)
    await asyncio.sleep(0.01)
    return content


async def test_commits_go_on_while_a_large_blob_is_swept(tmp_path: Path) -> None:
    async with open_storage(f"sqlite:///{tmp_path}/file.db") as kernel:
        await kernel.declare(Collection("things"))
        scope = kernel.scoped("p")
        await expired(scope)
        await expired(scope, chunks=1)
        sweeping = asyncio.create_task(kernel.sweep())
        commits = 0
        while not sweeping.done():
            await scope.commit(Put("things", "key", b""))
            commits += 1
        assert await sweeping == Swept(blobs=2)
        assert commits > 5
        assert await kernel.sweep() == Swept()
    assert rows(tmp_path / "file.db") == (0, 0)


async def test_an_interrupted_removal_is_continued(tmp_path: Path) -> None:
    """A process dies after it has removed the first chunks: no caller finds the blob, and the next sweep removes it."""
    url = f"sqlite:///{tmp_path}/file.db"
    async with open_storage(url) as kernel:
        assert isinstance(kernel, SQLiteKernel)
        content = await expired(kernel.scoped("p"))
        _, left = await kernel._writer.run(lambda turn: queues.sweep(turn, 10))
        assert await kernel._writer.run(lambda turn: queues.remove_blobs(turn, left)) == left
    assert rows(tmp_path / "file.db") == (1, CHUNKS - queues.REMOVED_CHUNKS)
    async with open_storage(url) as kernel:
        assert [problem async for problem in kernel.check()] == []
        assert (await kernel.stats()).blobs == 0
        blob = await kernel.scoped("p").stage_blob(content)  # the same content again, before the sweep
        assert await kernel.sweep() == Swept(blobs=1)
        assert await (await kernel.scoped("p").open_blob(blob.digest)).read() == content
    assert rows(tmp_path / "file.db") == (1, CHUNKS)


async def test_a_second_upload_of_the_same_content_is_removed(tmp_path: Path) -> None:
    async with open_storage(f"sqlite:///{tmp_path}/file.db") as kernel:
        content = os.urandom(CHUNKS * CHUNK_BYTES)
        for _ in range(2):
            await kernel.scoped("p").stage_blob(content)
        assert rows(tmp_path / "file.db") == (1, CHUNKS)
