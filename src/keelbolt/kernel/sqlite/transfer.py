"""Access to the whole file for the copier: snapshot reads, writes page by page through the writer, and marks."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

from keelbolt.errors import BadBackup, CopyOutdated, DestinationInUse
from keelbolt.kernel.declarations import CheckedCollection, Declarations, load_fields
from keelbolt.kernel.ledger import NewEntry, RecordState, StreamState, WorkRow
from keelbolt.kernel.private_files import ensure_private, sync_folder
from keelbolt.kernel.sqlite.connection import Connect, SqliteConnection, prepare_reader, translate
from keelbolt.kernel.sqlite.export import TRANSFER, FileSource
from keelbolt.kernel.sqlite.files import check_place
from keelbolt.kernel.sqlite.readers import SqliteReaders
from keelbolt.kernel.sqlite.schema import check_file, declare
from keelbolt.kernel.sqlite.writer import SqliteWriter, WriteJob
from keelbolt.kernel.transfer.ports import MARK, MarkState, Source, Transfer, WriteBlock, changed_mark
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
    StreamRow,
    Table,
)

NOTE = "copy"

_EMPTIED = (
    "record_index",
    "counter",
    "record",
    "entry",
    "dedupe",
    "stream",
    "work",
    "worker",
    "holding",
    "blob_chunk",
    "blob",
    "partition",
    "collection",
)

T = TypeVar("T")


class FileTransfer(Transfer):
    native = True

    def __init__(
        self,
        *,
        path: str,
        connect: Connect,
        writer: SqliteWriter,
        readers: SqliteReaders,
        now: Callable[[], int],
        declared: Declarations,
    ) -> None:
        self._path = path
        self._connect = connect
        self._writer = writer
        self._readers = readers
        self._now = now
        self._declared = declared

    def place(self) -> str:
        return f"sqlite:{Path(self._path).resolve()}"

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Source]:
        pool = ThreadPoolExecutor(1, thread_name_prefix="keelbolt-export")
        loop = asyncio.get_running_loop()
        connection = await loop.run_in_executor(pool, self._begin)
        try:
            yield FileSource(connection, self._now(), pool)
        finally:
            await loop.run_in_executor(pool, connection.close)
            pool.shutdown()

    def _begin(self) -> SqliteConnection:
        try:
            connection = self._connect(self._path)
            prepare_reader(connection)
            connection.execute("BEGIN")
            connection.execute(TRANSFER["last_fence"]).fetchone()  # the snapshot begins with the first read
        except sqlite3.Error as error:
            raise translate(error) from error
        return connection

    async def native_backup(self, file: Path, tell: Callable[[int, int], None]) -> None:
        await asyncio.to_thread(backup_file, self._path, file, tell)

    async def _run(self, job: Callable[[WriteJob], T]) -> T:
        return cast("T", await self._writer.run(job, relief=True))

    async def _fetch(self, query: str, *values: Any) -> list[Any]:
        return await self._readers.run(lambda connection: connection.execute(TRANSFER[query], values).fetchall())

    # ---------------------------------------------------------------------------------------------------- writing

    async def holds_data(self) -> bool:
        return bool((await self._fetch("holds_data"))[0][0])

    async def put(self, table: Table, rows: Sequence[Row], note: str) -> None:
        def write(turn: WriteJob) -> None:
            if table == "collection":
                for row in rows:
                    assert isinstance(row, CollectionRow)
                    shape = CheckedCollection.load(row.name, row.declaration)
                    turn.book.catalog = declare(turn.connection, turn.book.catalog, shape)
            else:
                try:
                    _PUT[table](turn, rows)
                except sqlite3.IntegrityError as error:
                    raise CopyOutdated from error
            turn.connection.execute(TRANSFER["set_meta"], (NOTE, note))

        await self._run(write)
        for row in rows:
            if isinstance(row, CollectionRow):
                self._declared.shapes[row.name] = CheckedCollection.load(row.name, row.declaration)

    async def raise_fence(self, fence: int) -> None:
        def write(turn: WriteJob) -> None:
            ledger = turn.book.ledger
            ledger.last_fence = max(ledger.last_fence, fence)
            turn.book.save_fence()

        await self._run(write)

    async def wipe(self) -> None:
        def write(turn: WriteJob) -> None:
            for name in _EMPTIED:
                turn.connection.execute(f"DELETE FROM {name}")
            turn.connection.execute(TRANSFER["wipe_meta"])
            turn.connection.execute(TRANSFER["set_meta"], ("catalog", turn.book.catalog.version + 1))
            turn.book.forget()
            turn.book.begin()

        await self._run(write)

    # --------------------------------------------------------------------------------------- the note and the mark

    async def note(self) -> str | None:
        rows = await self._fetch("get_meta", NOTE)
        return rows[0][0] if rows else None

    async def set_note(self, note: str) -> None:
        def write(turn: WriteJob) -> None:
            turn.connection.execute(TRANSFER["set_meta"], (NOTE, note))

        await self._run(write)

    async def release(self) -> None:
        def write(turn: WriteJob) -> None:
            for name, shape in list(self._declared.shapes.items()):
                if name not in turn.book.catalog.shapes:
                    turn.book.catalog = declare(turn.connection, turn.book.catalog, shape)
            turn.connection.executemany(TRANSFER["delete_meta"], [(NOTE,), (MARK,)])
            turn.book.mark = None

        await self._run(write)

    async def mark(self) -> WriteBlock | None:
        rows = await self._fetch("get_meta", MARK)
        mark = WriteBlock.load(rows[0][0]) if rows else None
        return mark if mark is not None and not mark.over(self._now()) else None

    async def set_mark(
        self, state: MarkState | None, copy: str, *, seconds: float | None = None, if_held: bool = False
    ) -> None:
        def write(turn: WriteJob) -> None:
            book = turn.book
            book.mark = changed_mark(book.mark, state, copy, now=turn.now, seconds=seconds, if_held=if_held)
            turn.connection.execute(TRANSFER["delete_meta"], (MARK,))
            if book.mark is not None:
                turn.connection.execute(TRANSFER["set_meta"], (MARK, book.mark.dump()))

        await self._run(write)


# ------------------------------------------------------------------------------------------------------- write rows


def _put_partitions(turn: WriteJob, rows: Sequence[PartitionRow]) -> None:
    turn.book.save([row.name for row in rows], now=turn.now)


def _put_records(turn: WriteJob, rows: Sequence[RecordRow]) -> None:
    ledger = turn.book.ledger
    for partition, collection, key, version, fields, expires_in, body in rows:
        if collection in turn.book.catalog.shapes:
            expires_at = None if expires_in is None else turn.now + expires_in
            state = RecordState(version, load_fields(fields), expires_at, body, text=fields)
            ledger.put_record((partition, collection, key), state)
    turn.book.save({row.partition for row in rows}, now=turn.now)


def _put_streams(turn: WriteJob, rows: Sequence[StreamRow]) -> None:
    ledger = turn.book.ledger
    for partition, log, stream, head, floor in rows:
        ledger.put_stream((partition, log, stream), StreamState(ledger.next_stream(), head, floor))
    turn.book.save({row.partition for row in rows}, now=turn.now)


def _put_entries(turn: WriteJob, rows: Sequence[EntryRow]) -> None:
    ledger = turn.book.ledger
    turn.book.load_streams({row[:3]: None for row in rows})
    for partition, log, stream, seq, at, kind, data, dedupe in rows:
        state = ledger.streams[partition, log, stream]
        if state is not None:
            ledger.entries.append(NewEntry(state.id, seq, kind, data, at, dedupe))
    turn.book.save((), now=turn.now)


def _put_work(turn: WriteJob, rows: Sequence[ItemRow]) -> None:
    for partition, queue, key, state, lane, priority, ready_in, attempt, most, fence, reason in rows:
        row = WorkRow(state, lane, priority, turn.now + ready_in, attempt, most, fence, None, None, reason)
        turn.book.ledger.put_work((partition, queue, key), row)
    turn.book.save({row.partition for row in rows}, now=turn.now)


def _put_blobs(turn: WriteJob, rows: Sequence[BlobRow]) -> None:
    values = [(*row[:3], None if row.grace is None else turn.now + row.grace) for row in rows]
    turn.connection.executemany(TRANSFER["put_blob"], values)
    turn.book.save({row.partition for row in rows}, now=turn.now)


def _put_chunks(turn: WriteJob, rows: Sequence[ChunkRow]) -> None:
    values = [(row.number, hashlib.sha256(row.data).digest(), row.data, row.partition, row.digest) for row in rows]
    turn.connection.executemany(TRANSFER["put_chunk"], values)
    turn.book.rows += sum(len(row.data) // 4096 + 2 for row in rows)


def _put_holdings(turn: WriteJob, rows: Sequence[HoldingRow]) -> None:
    values = [(row.holder, row.partition, row.digest) for row in rows]
    turn.connection.executemany(TRANSFER["put_holding"], values)


_PUT: dict[Table, Callable[[WriteJob, Any], None]] = {
    "partition": _put_partitions,
    "record": _put_records,
    "stream": _put_streams,
    "entry": _put_entries,
    "work": _put_work,
    "blob": _put_blobs,
    "chunk": _put_chunks,
    "holding": _put_holdings,
}


# --------------------------------------------------------------------------------------------------------------- backup


PAGES = 1000  # per step
FORMAT = b"SQLite format 3\0"

Tell = Callable[[int, int], None]  # pages done, pages in total


def backup_file(path: str, partial: Path, tell: Tell) -> None:
    """Copy the database into a new file and check its integrity."""
    with contextlib.closing(_connect(path)) as source, contextlib.closing(_connect(str(partial))) as target:
        # One read transaction for all steps: otherwise each commit of another process would restart the copy.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        try:
            _copy(source, target, tell)
            target.execute("PRAGMA journal_mode = DELETE").fetchone()  # one file without -wal and -shm
            target.execute("DELETE FROM meta WHERE name IN ('mark', 'copy')")
            _check(target)
        except sqlite3.Error as error:
            raise translate(error) from error


def restore_file(place: Path, path: str, tell: Tell) -> None:
    """Create a database from a backup. It gets its final name when it is complete."""
    check_place(Path(path))
    if Path(path).exists():
        raise DestinationInUse(f"{Path(path).name!r} exists already; choose another file")
    for log in (Path(f"{path}{ending}") for ending in ("-wal", "-journal")):
        if log.exists() and log.stat().st_size:  # SQLite would write its pages into the restored file
            raise DestinationInUse(f"{log.name!r} is left of another database; move it away, or choose another file")
    partial = Path(f"{path}.partial")
    partial.unlink(missing_ok=True)
    try:
        with contextlib.closing(open_backup(place)) as source, contextlib.closing(_connect(str(partial))) as target:
            _copy(source, target, tell)
            target.execute("PRAGMA journal_mode = WAL").fetchone()
        partial.rename(path)
        sync_folder(partial.parent)
    except sqlite3.Error as error:
        raise translate(error) from error
    finally:
        for leftover in ("", "-wal", "-shm"):
            Path(f"{partial}{leftover}").unlink(missing_ok=True)


def is_sqlite(place: Path) -> bool:
    with place.open("rb") as file:
        return file.read(len(FORMAT)) == FORMAT


def open_backup(place: Path) -> sqlite3.Connection:
    """Open the backup without creating files next to it, and check its integrity."""
    backup = _connect(f"file:{quote(str(place.resolve()))}?mode=ro&immutable=1", uri=True)
    try:
        check_file(backup)
        _check(backup)
    except BaseException as error:
        backup.close()
        if isinstance(error, sqlite3.Error):
            raise BadBackup from error
        raise
    return backup


def _connect(place: str, *, uri: bool = False) -> sqlite3.Connection:
    if not uri:
        ensure_private(place)
    return sqlite3.connect(place, timeout=10.0, isolation_level=None, check_same_thread=False, uri=uri)


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, tell: Tell) -> None:
    source.backup(target, pages=PAGES, progress=lambda _status, left, total: tell(total - left, total), sleep=0.0)


def _check(connection: sqlite3.Connection) -> None:
    (answer,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if answer != "ok":
        raise BadBackup
