"""Connections to the file, and what SQLite's errors mean for a caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from keelbolt.errors import (
    KeelboltError,
    StorageBroken,
    StorageBusy,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageReadOnly,
)
from keelbolt.storage.contract import Durability
from keelbolt.storage.migrations import queries_of
from keelbolt.storage.private_files import ensure_private

SQL = queries_of("keelbolt.storage.sqlite")

BUSY_SECONDS = 10.0
WAL_PAGES = 1000  # after so many pages of 4 KiB the writer makes a checkpoint, beside the commits
WAL_BYTES = 8 * 1024 * 1024  # after a checkpoint the file is cut to this


class Cursor(Protocol):
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """What the engine uses of a connection; tests bring others, on file systems that fail on command."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor: ...
    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> Cursor: ...
    def close(self) -> None: ...


class Connect(Protocol):
    def __call__(self, path: str) -> Connection: ...


def connect(path: str) -> Connection:
    """A connection to this file. A new file is private; SQLite gives its mode to the files beside it (-wal, -shm)."""
    ensure_private(path)
    return sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
    )


def prepare(connection: Connection, durability: Durability) -> None:
    """Settings of every connection that belong to it, not to the file."""
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'durable' else 'NORMAL'}")
    # While a reader holds an old page, a checkpoint can't reach the end of the log: then later commits make one.
    connection.execute(f"PRAGMA wal_autocheckpoint = {2 * WAL_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    connection.execute("PRAGMA cache_size = -16000")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA secure_delete = ON")  # deleted bytes are overwritten: what is erased is not in the file


def empty_log(connect: Connect, path: str) -> None:
    """Move the whole write-ahead log into the file and cut it to nothing: it holds older versions of pages."""
    connection = connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        raise translate(error) from error
    finally:
        connection.close()


def prepare_reader(connection: Connection) -> None:
    """Settings of a connection that reads only."""
    prepare(connection, "relaxed")
    connection.execute("PRAGMA query_only = ON")


def rows_of_marks(sql: str, columns: int, rows: int) -> str:
    """The statement with its {keys} filled: so many rows of so many ? marks."""
    row = f"({', '.join('?' * columns)})"
    return sql.format(keys=", ".join([row] * rows))


def translate(error: sqlite3.Error) -> KeelboltError:
    """The error of ours that says what this one means; the original stays its cause."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    name = getattr(error, "sqlite_errorname", None) or ""
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return StorageFull()
        case sqlite3.SQLITE_IOERR if name in ("SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_SHMOPEN"):
            return StorageFull()  # the index of the write-ahead log found no room
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StorageBusy()
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StorageCorrupt()
        case sqlite3.SQLITE_READONLY:
            return StorageReadOnly()
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN:
            return StorageBroken()
        case 0 if "Could not decode to UTF-8" in str(error):  # Python's own words for a damaged text
            return StorageCorrupt()
        case _:
            return StorageError(f"the database engine answered {name or type(error).__name__}")
