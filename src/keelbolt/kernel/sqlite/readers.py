"""Reads: a few threads with a connection each. They never block the writer.

Reads of a known key are short. One thread serves them in batches, as the writer does with commits, since a thread
switch costs more than such a read. Reads of unknown length (scans, counts, checks) use a pool of threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from keelbolt.errors import StorageCorrupt
from keelbolt.kernel.declarations import load_fields
from keelbolt.kernel.logs import Entry, LogPage
from keelbolt.kernel.records import Record
from keelbolt.kernel.sqlite.connection import SQL, Connect, SqliteConnection, prepare_reader, translate
from keelbolt.kernel.sqlite.rows import UNREADABLE, body_is_sound, entry_is_sound, head_crc
from keelbolt.kernel.sqlite.writer import Answer, SqliteWriter, settle
from keelbolt.observability.metrics import Meter

T = TypeVar("T")

ENDLESS = 1 << 62


class SqliteReaders(Protocol):
    def get(self, read: Callable[[SqliteConnection], T]) -> Awaitable[T]:
        """Run a short read: of a known key, or of one page of a log."""

    def run(self, read: Callable[[SqliteConnection], T]) -> Awaitable[T]:
        """Run a read of any length."""

    def close(self) -> None: ...


class ReaderThreads:
    """Each read runs in one read transaction, so that it sees a single moment."""

    def __init__(self, connect: Connect, path: str, threads: int, meter: Meter) -> None:
        self._connect = connect
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._meter = meter
        self._local = threading.local()
        self._connections: list[SqliteConnection] = []
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="keelbolt-reader")
        self._short: SimpleQueue[_Read | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="keelbolt-short-reads")
        self._thread.start()

    def get(self, read: Callable[[SqliteConnection], T]) -> Awaitable[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self._short.put((future, read))
        return future

    def run(self, read: Callable[[SqliteConnection], T]) -> Awaitable[T]:
        return self._loop.run_in_executor(self._pool, self._read, read)

    def _read(self, read: Callable[[SqliteConnection], T]) -> T:
        try:
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                return read(connection)
            finally:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            translated = translate(error)
            self._meter.failed(translated)
            raise translated from error
        except UNREADABLE as error:
            raise StorageCorrupt.of("something stored") from error

    def _connection(self) -> SqliteConnection:
        connection: SqliteConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect(self._path)
            prepare_reader(connection)
            self._local.connection = connection
            self._connections.append(connection)
        return connection

    def _serve(self) -> None:
        """Serve all queued short reads together, with one wake-up of the event loop."""
        queue = self._short
        while True:
            batch = [queue.get()]
            batch += [queue.get() for _ in range(queue.qsize())]
            answers = [self._answer(*each) for each in batch if each is not None]
            if answers:
                with contextlib.suppress(RuntimeError):  # the loop is closed, so no caller waits
                    self._loop.call_soon_threadsafe(settle, answers)
            if None in batch:
                return

    def _answer(self, future: asyncio.Future[Any], read: Callable[[SqliteConnection], Any]) -> Answer:
        try:
            return future, self._read(read), None
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            return future, None, error

    def close(self) -> None:
        self._short.put(None)
        self._thread.join()
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()


_Read = tuple["asyncio.Future[Any]", Callable[[SqliteConnection], Any]]


class ReadByWriter:
    """Reads on the writer's connection, for files that only one connection can open."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    def get(self, read: Callable[[SqliteConnection], T]) -> Awaitable[T]:
        return self.run(read)

    def run(self, read: Callable[[SqliteConnection], T]) -> Awaitable[T]:
        return self._writer.run(lambda turn: read(turn.connection), relief=True)

    def close(self) -> None:
        pass


def read_records(
    connection: SqliteConnection, partition: str, collection: str, keys: Sequence[str], *, now: int
) -> list[Record | None]:
    found: list[Record | None] = []
    for key in keys:
        row = connection.execute(SQL["get_record"], (partition, collection, key, now)).fetchone()
        found.append(row and checked_record(partition, collection, key, *row))
    return found


def checked_record(
    partition: str,
    collection: str,
    key: str,
    version: int,
    fields: str,
    head: int,
    crc: int,
    body: bytes,
    expires_at: int | None,
) -> Record:
    if not body_is_sound(body, crc) or head_crc(partition, collection, key, version, fields, expires_at) != head:
        raise StorageCorrupt.of(f"a record of {collection!r}")
    return Record(collection, key, version, body, load_fields(fields))


def scan(
    connection: SqliteConnection,
    collection: str,
    name: int,
    low: bytes,
    high: bytes,
    *,
    now: int,
    newest_first: bool,
    limit: int,
) -> list[tuple[bytes, Record]]:
    query = SQL["scan_down" if newest_first else "scan_up"]
    return [
        (entry, checked_record(partition, collection, key, *row))
        for entry, key, *row, partition in connection.execute(query, (name, low, high, now, limit))
    ]


def read_log(
    connection: SqliteConnection,
    stream: tuple[str, str, str],
    after: int,
    before: int | None,
    *,
    limit: int,
    max_bytes: int,
    backward: bool,
) -> LogPage:
    state = connection.execute(SQL["get_stream"], stream).fetchone()
    if state is None:
        return LogPage((), 0, 0)
    number, head, floor = state
    query = SQL["read_down" if backward else "read_up"]
    rows = connection.execute(query, (number, max(after, floor), ENDLESS if before is None else before, limit))
    entries: list[Entry] = []
    size = 0
    expected: int | None = None
    for seq, kind, data, at, crc in rows:
        size += len(data)
        if entries and size > max_bytes:
            break
        if not entry_is_sound(number, seq, at, kind, data, crc) or (expected is not None and seq != expected):
            raise StorageCorrupt.of(f"an entry of the log {stream[1]!r}")
        entries.append(Entry(seq, kind, data, at))
        expected = seq - 1 if backward else seq + 1
    return LogPage(tuple(entries), head, floor)


def only(row: Any) -> int:
    return int(row[0]) if row is not None else 0
