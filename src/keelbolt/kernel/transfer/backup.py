"""The portable backup: one file with the rows of a whole store, written and read as a stream.

    magic · frame · frame · …      frame = tag (4 bytes) · length (4) · checksum (4) · payload

Each checksum continues the previous one, so that a lost, changed or moved frame is detected. The frames are HEAD (JSON:
id, engine, time), ROWS (a page of one table, compressed) and DONE (JSON: counts and hashes); a file without DONE is
incomplete. A page is a JSON array of rows, with the length of the bytes in place of the bytes, followed by the bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from keelbolt.errors import BadBackup, DestinationInUse, TransferError
from keelbolt.kernel.ids import new_id
from keelbolt.kernel.private_files import create_private, sync_folder
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
from keelbolt.kernel.transfer.ports import Cursor, RowPage, Source, Transfer
from keelbolt.kernel.transfer.rows import ROW_TYPES, TABLES, BlobRow, ItemRow, RecordRow, Row, RowDigests, Table


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
        sync_folder(place.parent)
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
        with _readable():
            for frame in frames(file):
                if done is not None:
                    raise BadBackup
                if frame.tag == b"HEAD":
                    head = json.loads(frame.payload)
                    int(head["taken_at"]), str(head["id"])
                elif frame.tag == b"DONE":
                    done = json.loads(frame.payload)
                    int(done["last_fence"])
                    RowDigests.of_json(done["digests"])
                elif frame.tag == b"ROWS":
                    table_of(frame.payload)
    if head is None or done is None:
        raise BadBackup("this backup is cut off; use another one")
    return head, done


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Raise BadBackup if the content of a frame can't be decoded: its checksum does not show which program wrote it."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, struct.error, zlib.error):
        raise BadBackup from None


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


# -------------------------------------------------------------------------------------------------------------- archive


MAGIC = b"KEELBOLT BACKUP 1\n"
LEVEL = 1  # the fastest compression, because compression is slower than the disk

_FRAME = struct.Struct(">4sII")
_LENGTH = struct.Struct(">BI")
_BYTES: dict[Table, int] = {"record": 6, "entry": 6, "chunk": 3}  # the column that holds bytes
MAX_FRAME = 1 << 30
MAX_PAGE = 1 << 28  # bytes of a decompressed page, which has PAGE_BYTES and one more record


@dataclass(frozen=True, slots=True)
class ArchiveFrame:
    """``next`` is the resume position: the offset after this frame, and the checksum up to there."""

    tag: bytes
    payload: bytes
    next: tuple[int, int]


class ArchiveWriter:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._crc = 0
        file.write(MAGIC)

    def write(self, tag: bytes, payload: bytes) -> None:
        self._crc = zlib.crc32(payload, zlib.crc32(tag, self._crc))
        self._file.write(_FRAME.pack(tag, len(payload), self._crc))
        self._file.write(payload)

    def write_json(self, tag: bytes, value: dict[str, Any]) -> None:
        self.write(tag, json.dumps(value).encode())

    def write_rows(self, table: Table, rows: list[Row]) -> None:
        self.write(b"ROWS", zlib.compress(pack(table, rows), LEVEL))


def frames(file: BinaryIO, start: tuple[int, int] | None = None) -> Iterator[ArchiveFrame]:
    """Return the frames from this position; each checksum is verified."""
    offset, crc = start or (len(MAGIC), 0)
    file.seek(offset)
    while head := file.read(_FRAME.size):
        if len(head) < _FRAME.size:
            raise BadBackup("this backup is cut off; use another one")
        tag, length, expected = _FRAME.unpack(head)
        if length > MAX_FRAME:
            raise BadBackup
        payload = file.read(length)
        if len(payload) < length:
            raise BadBackup("this backup is cut off; use another one")
        crc = zlib.crc32(payload, zlib.crc32(tag, crc))
        if crc != expected:
            raise BadBackup
        offset += _FRAME.size + length
        yield ArchiveFrame(tag, payload, (offset, crc))


def pack(table: Table, rows: list[Row]) -> bytes:
    place = _BYTES.get(table)
    if place is None:
        text = json.dumps(rows).encode()
        return _LENGTH.pack(TABLES.index(table), len(text)) + text
    lines: list[list[Any]] = [list(row) for row in rows]
    values = [line[place] for line in lines]
    for line, value in zip(lines, values, strict=True):
        line[place] = len(value)
    text = json.dumps(lines).encode()
    return b"".join([_LENGTH.pack(TABLES.index(table), len(text)), text, *values])


def table_of(payload: bytes) -> Table:
    """Return the table of a page without decoding the page."""
    return TABLES[zlib.decompressobj().decompress(payload, 1)[0]]


@_readable()
def unpack(payload: bytes) -> tuple[Table, list[Row]]:
    inflating = zlib.decompressobj()
    data = inflating.decompress(payload, MAX_PAGE)
    if not inflating.eof:
        raise BadBackup
    number, length = _LENGTH.unpack_from(data)
    table = TABLES[number]
    start = _LENGTH.size + length
    lines = json.loads(data[_LENGTH.size : start])
    place = _BYTES.get(table)
    if place is not None:
        for line in lines:
            end = start + line[place]
            line[place] = data[start:end]
            start = end
    kind = ROW_TYPES[table]
    return table, [kind(*line) for line in lines]
