"""File backups by SQLite's online backup: a copy of one moment, while other processes continue to write."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from keelbolt.errors import BadBackup, DestinationInUse
from keelbolt.kernel.private_files import ensure_private
from keelbolt.kernel.sqlite.connection import translate
from keelbolt.kernel.sqlite.files import check_place
from keelbolt.kernel.sqlite.schema import check_file

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
    partial = Path(f"{path}.partial")
    partial.unlink(missing_ok=True)
    try:
        with contextlib.closing(open_backup(place)) as source, contextlib.closing(_connect(str(partial))) as target:
            _copy(source, target, tell)
            target.execute("PRAGMA journal_mode = WAL").fetchone()
        partial.rename(path)
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
