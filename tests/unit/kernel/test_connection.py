"""Translation of SQLite's errors."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from keelbolt.errors import (
    StorageBroken,
    StorageBusy,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageReadOnly,
)
from keelbolt.kernel.sqlite.connection import connect, prepare, rows_of_marks, translate
from keelbolt.kernel.sqlite.schema import cannot_open


def error(code: int, name: str) -> sqlite3.Error:
    made = sqlite3.OperationalError("disk I/O error in /some/where")
    made.sqlite_errorcode = code
    made.sqlite_errorname = name
    return made


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SQLITE_FULL", StorageFull),
        ("SQLITE_IOERR_SHMSIZE", StorageFull),
        ("SQLITE_IOERR_SHMOPEN", StorageFull),
        ("SQLITE_BUSY", StorageBusy),
        ("SQLITE_BUSY_SNAPSHOT", StorageBusy),
        ("SQLITE_BUSY_RECOVERY", StorageBusy),
        ("SQLITE_LOCKED", StorageBusy),
        ("SQLITE_CORRUPT", StorageCorrupt),
        ("SQLITE_CORRUPT_INDEX", StorageCorrupt),
        ("SQLITE_NOTADB", StorageCorrupt),
        ("SQLITE_READONLY", StorageReadOnly),
        ("SQLITE_READONLY_DBMOVED", StorageReadOnly),
        ("SQLITE_IOERR", StorageBroken),
        ("SQLITE_IOERR_FSYNC", StorageBroken),
        ("SQLITE_IOERR_WRITE", StorageBroken),
        ("SQLITE_CANTOPEN", StorageBroken),
        ("SQLITE_ERROR", StorageError),
        ("SQLITE_CONSTRAINT_UNIQUE", StorageError),
        ("SQLITE_INTERRUPT", StorageError),
    ],
)
def test_every_code_has_its_error(name: str, kind: type[StorageError]) -> None:
    answer = translate(error(getattr(sqlite3, name), name))
    assert type(answer) is kind
    assert "/some/where" not in str(answer)
    assert answer.retryable == (kind in (StorageFull, StorageBusy))
    if kind is StorageError:
        assert name in str(answer)


def test_an_error_without_a_code_is_still_translated() -> None:
    answer = translate(sqlite3.ProgrammingError("Cannot operate on a closed database."))
    assert type(answer) is StorageError
    assert "ProgrammingError" in str(answer)


def test_invalid_utf8_is_damage() -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("SELECT CAST(x'ff' AS TEXT)").fetchone()
    assert type(translate(caught.value)) is StorageCorrupt


def test_a_damaged_file_is_distinguished_at_opening() -> None:
    for name in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
        answer = cannot_open(error(getattr(sqlite3, name), name))
        assert type(answer) is StorageCorrupt
        assert "restore it from a backup or choose another file" in str(answer)
    assert type(cannot_open(error(sqlite3.SQLITE_BUSY, "SQLITE_BUSY"))) is StorageBusy


@pytest.mark.parametrize(("durability", "synchronous"), [("durable", 2), ("relaxed", 1)])
def test_durability_is_a_setting_of_the_connection(tmp_path: Path, durability: str, synchronous: int) -> None:
    with closing(connect(str(tmp_path / "file.db"))) as connection:
        prepare(connection, "durable" if durability == "durable" else "relaxed")
        assert connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)
        assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)


def test_rows_of_placeholders() -> None:
    assert rows_of_marks("VALUES {keys}", 2, 3) == "VALUES (?, ?), (?, ?), (?, ?)"
