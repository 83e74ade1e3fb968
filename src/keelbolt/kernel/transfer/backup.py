"""Writes a whole store into one portable file, and reads such a file as the source of a copy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from keelbolt.errors import BadBackup, DestinationInUse, TransferError
from keelbolt.kernel.ids import new_id
from keelbolt.kernel.private_files import create_private
from keelbolt.kernel.transfer.archive import MAGIC, ArchiveWriter, frames, table_of, unpack
from keelbolt.kernel.transfer.copy import (
    Copied,
    CopyProgress,
    Tell,
    ahead,
    begin,
    copy_tables,
    finish,
    say_nothing,
    verify,
    weight,
    writing_refused,
)
from keelbolt.kernel.transfer.digests import RowDigests
from keelbolt.kernel.transfer.ports import Cursor, RowPage, Source, Transfer
from keelbolt.kernel.transfer.rows import TABLES, BlobRow, ItemRow, RecordRow, Row, Table


@contextlib.contextmanager
def new_file(place: Path) -> Iterator[Path]:
    """Create a file under a temporary name; rename it to ``place`` when it is complete and synced. Never overwrites."""
    if place.exists():
        raise DestinationInUse(f"{place.name!r} exists already; choose another name")
    partial = place.with_name(f"{place.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        os.close(create_private(partial))
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(place)
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise TransferError(
            f"{place.name!r} can't be written: {error.strerror}; the partial file was removed"
        ) from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


async def write_backup(transfer: Transfer, engine: str, place: Path, *, tell: Tell = say_nothing) -> Copied:
    """Write a consistent copy of the store into a portable file."""
    digests = RowDigests()
    head = {"id": new_id(), "engine": engine, "taken_at": time.time_ns() // 1000}
    with new_file(place) as partial:
        file = await asyncio.to_thread(partial.open, "wb")
        with file:
            async with _still(transfer), transfer.reading() as reading:
                writer = ArchiveWriter(file)
                writer.write_json(b"HEAD", head)
                rows = await _write_tables(reading, writer, digests, tell)
                fence = await reading.last_fence()
            writer.write_json(b"DONE", {"rows": rows, "last_fence": fence, "digests": digests.to_json()})
        await asyncio.to_thread(check_backup, partial)
    return Copied(str(head["id"]), rows, digests.counts(), resumed=False)


@contextlib.asynccontextmanager
async def _still(transfer: Transfer) -> AsyncIterator[None]:
    """Refuse writes if the engine has no snapshots."""
    mark = await transfer.mark()
    if transfer.snapshots or (mark is not None and mark.state == "moved"):
        yield
        return
    if mark is not None:
        raise TransferError("this storage is being copied or filled; wait until that is finished")
    async with writing_refused(transfer, new_id()):
        yield


async def _write_tables(reading: Source, writer: ArchiveWriter, digests: RowDigests, tell: Tell) -> int:
    totals = await reading.totals()
    rows = passed = 0
    for table in TABLES:
        done = 0
        async for page in ahead(reading.pages(table)):
            await asyncio.to_thread(writer.write_rows, table, list(page.rows))
            digests.add(page.rows)
            done += len(page.rows)
            passed += weight(page.rows)
            tell(CopyProgress("copy", table, done, totals[table], passed))
        rows += done
    return rows


def is_portable(place: Path) -> bool:
    with place.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def check_backup(place: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read and verify the whole file. Return its HEAD and DONE frames."""
    with place.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise BadBackup("this file is not a backup made by Keelbolt; name another one")
        head: dict[str, Any] | None = None
        done: dict[str, Any] | None = None
        for frame in frames(file):
            if done is not None:
                raise BadBackup
            if frame.tag == b"HEAD":
                head = json.loads(frame.payload)
            elif frame.tag == b"DONE":
                done = json.loads(frame.payload)
    if head is None or done is None:
        raise BadBackup("this backup is cut off; use another one")
    return head, done


class BackupSource(Source):
    """The rows of a portable file. The time since the backup is subtracted from their remaining times."""

    def __init__(self, file: BinaryIO, head: dict[str, Any], done: dict[str, Any]) -> None:
        self._file = file
        self._done = done
        self._next: tuple[int, int] | None = None
        self._elapsed = max(time.time_ns() // 1000 - int(head["taken_at"]), 0)

    async def totals(self) -> dict[Table, int]:
        return dict.fromkeys(TABLES, 0)

    async def last_fence(self) -> int:
        return int(self._done["last_fence"])

    async def pages(self, table: Table, after: Cursor | None = None) -> AsyncIterator[RowPage]:
        if after is not None:
            self._next = (int(after[0]), int(after[1]))
        for frame in frames(self._file, self._next):
            if frame.tag == b"ROWS":
                if table_of(frame.payload) != table:
                    return
                _, rows = await asyncio.to_thread(unpack, frame.payload)
                self._next = frame.next
                yield RowPage([self._later(row) for row in rows], list(frame.next))
            elif frame.tag == b"HEAD":
                self._next = frame.next

    def _later(self, row: Row) -> Row:
        match row:
            case RecordRow() if row.expires_in is not None:
                return row._replace(expires_in=row.expires_in - self._elapsed)
            case ItemRow():
                return row._replace(ready_in=row.ready_in - self._elapsed)
            case BlobRow() if row.grace is not None:
                return row._replace(grace=row.grace - self._elapsed)
            case _:
                return row


async def read_backup(place: Path, destination: Transfer, *, restart: bool, tell: Tell = say_nothing) -> Copied:
    """Fill an empty store from a portable file. The whole file is verified before anything is written."""
    head, done = await asyncio.to_thread(check_backup, place)
    file = await asyncio.to_thread(place.open, "rb")
    with file:
        source = BackupSource(file, head, done)
        note, resumed = await begin(destination, f"backup:{head['id']}", restart=restart)
        await copy_tables(source, destination, note, tell=tell)
        digests = RowDigests.of_json(done["digests"])
        await verify(digests, destination, tell=tell)
        await finish(source, destination)
    return Copied(note.copy, note.rows, digests.counts(), resumed)
