"""Connections to the file, and the translation of SQLite's errors."""

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
from keelbolt.kernel.contract import Durability
from keelbolt.kernel.migrations import queries_of
from keelbolt.kernel.private_files import ensure_private

SQL = queries_of("keelbolt.kernel.sqlite")

BUSY_SECONDS = 10.0
CACHE_KIB = 16_000  # pages that a connection keeps in memory
WAL_PAGES = 1000  # pages of 4 KiB after which the writer runs a checkpoint, outside of the commits
WAL_BYTES = 8 * 1024 * 1024  # size to which the log is truncated after a checkpoint


class SqliteCursor(Protocol):
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class SqliteConnection(Protocol):
    """The part of a connection that the engine uses. Tests substitute ones whose file system fails on command."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> SqliteCursor: ...
    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> SqliteCursor: ...
    def close(self) -> None: ...


class Connect(Protocol):
    def __call__(self, path: str) -> SqliteConnection: ...


def connect(path: str) -> SqliteConnection:
    """Return a connection to this file. A new file is private; SQLite applies its mode to -wal and -shm."""
    ensure_private(path)
    return sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
    )


def prepare(connection: SqliteConnection, durability: Durability) -> None:
    """Apply the settings that belong to a connection, not to the file."""
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'durable' else 'NORMAL'}")
    # While a reader uses an old page, a checkpoint can't reach the end of the log; a later commit then runs one.
    connection.execute(f"PRAGMA wal_autocheckpoint = {2 * WAL_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA secure_delete = ON")  # overwrites deleted bytes, so that erased data is not in the file


def prepare_reader(connection: SqliteConnection) -> None:
    """Apply the settings of a read-only connection."""
    prepare(connection, "relaxed")
    connection.execute("PRAGMA query_only = ON")


def rows_of_marks(sql: str, columns: int, rows: int) -> str:
    """Return the statement with {keys} replaced by ``rows`` rows of ``columns`` placeholders."""
    row = f"({', '.join('?' * columns)})"
    return sql.format(keys=", ".join([row] * rows))


def translate(error: sqlite3.Error) -> KeelboltError:
    """Return the Keelbolt error for an SQLite error. The caller keeps the original as its cause."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    name = getattr(error, "sqlite_errorname", None) or ""
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return StorageFull()
        case sqlite3.SQLITE_IOERR if name in ("SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_SHMOPEN"):
            return StorageFull()  # no space for the index of the write-ahead log
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StorageBusy()
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StorageCorrupt()
        case sqlite3.SQLITE_READONLY:
            return StorageReadOnly()
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN:
            return StorageBroken()
        case 0 if "Could not decode to UTF-8" in str(error):  # sqlite3's message for damaged text
            return StorageCorrupt()
        case _:
            return StorageError(f"the database engine returned {name or type(error).__name__}")
