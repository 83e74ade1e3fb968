"""Creates and migrates the schema of a Keelbolt database file, and stores its catalog."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from keelbolt.errors import CannotOpen, NotKeelbolt, StorageBusy, StorageCorrupt, StorageError
from keelbolt.kernel.clock import Clock
from keelbolt.kernel.declarations import REBUILD_ROWS, SLOTS, Catalog, CheckedCollection, IndexChanges, load_fields
from keelbolt.kernel.migrations import Migration, migrations_of, unapplied
from keelbolt.kernel.sqlite.connection import SQL, Connect, SqliteConnection, connect, translate
from keelbolt.kernel.sqlite.files import WriteLock, check_place

APPLICATION_ID = 0x4B454C31  # "KEL1"
SCRUB_SECONDS = 10.0  # how long a scrub waits for readers
SCRUB_STEP_MS = 500  # writers can commit after each step

_APPLIED = """CREATE TABLE IF NOT EXISTS migration (
    number   INTEGER PRIMARY KEY,
    name     TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
)"""


def pending(path: str) -> list[Migration]:
    """Return the migrations that `migrate` would apply. Changes nothing."""
    known = migrations_of("keelbolt.kernel.sqlite")
    check_place(Path(path))
    if not Path(path).exists() or Path(path).stat().st_size == 0:
        return known
    connection = connect(path)
    try:
        return check_file(connection)
    except sqlite3.Error as error:
        raise cannot_open(error) from error
    finally:
        connection.close()


def migrate(path: str) -> list[Migration]:
    """Apply the missing migrations and return them."""
    check_place(Path(path))
    connection = connect(path)
    try:
        check_file(connection)
        with contextlib.closing(WriteLock(path)) as lock:
            return prepare_file(connection, lock)
    except sqlite3.Error as error:
        raise cannot_open(error) from error
    finally:
        connection.close()


def run_script(path: str, sql: str) -> None:
    """Run a face's statements in an existing file, all or none."""
    check_place(Path(path))
    connection = connect(path)
    try:
        if check_file(connection):
            raise CannotOpen("this storage does not have this program's schema; run keelbolt migrate first")
        with contextlib.closing(WriteLock(path)) as lock, lock.held(), _transaction(connection):
            for statement in _statements(sql):
                connection.execute(statement)
    except sqlite3.Error as error:
        raise cannot_open(error) from error
    finally:
        connection.close()


def check_file(connection: SqliteConnection) -> list[Migration]:
    """Refuse a file of another program, or of a newer Keelbolt, before any file is created next to it."""
    _check_owner(connection)
    return unapplied(migrations_of("keelbolt.kernel.sqlite"), _applied(connection))


def prepare_file(connection: SqliteConnection, lock: WriteLock | None) -> list[Migration]:
    """Apply the missing migrations under the lock, in one transaction."""
    known = migrations_of("keelbolt.kernel.sqlite")
    if not check_file(connection):
        return []
    with lock.held() if lock is not None else contextlib.nullcontext():
        if not _tables(connection):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        with _transaction(connection):
            missing = unapplied(known, _applied(connection))
            for migration in missing:
                _apply(connection, migration)
        return missing


@contextlib.contextmanager
def _transaction(connection: SqliteConnection) -> Iterator[None]:
    """Run the block in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _apply(connection: SqliteConnection, migration: Migration) -> None:
    connection.execute(_APPLIED)
    for statement in _statements(migration.sql):
        connection.execute(statement)
    connection.execute(
        "INSERT INTO migration (number, name, checksum) VALUES (?, ?, ?)",
        (migration.number, migration.name, migration.checksum),
    )
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def empty_log(connect: Connect, path: str) -> None:
    """Move the whole write-ahead log into the file and truncate it, since it holds older versions of pages.

    The lock excludes commits, as in every checkpoint. Raise StorageBusy if a reader still needs the log.
    """
    deadline = time.monotonic() + SCRUB_SECONDS
    connection = connect(path)
    try:
        connection.execute(f"PRAGMA busy_timeout = {SCRUB_STEP_MS}")
        with contextlib.closing(WriteLock(path)) as lock:
            while True:
                with lock.held():
                    (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if not busy:
                    return
                if time.monotonic() > deadline:
                    raise StorageBusy(
                        "deleted data is still in the write-ahead log, because another process has been reading this "
                        "storage for a while (a backup, an export, a check). Scrub or erase again when it has ended"
                    )
    except sqlite3.Error as error:
        raise translate(error) from error
    finally:
        connection.close()


def _statements(sql: str) -> list[str]:
    statements, current = [], ""
    for line in sql.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements


def _check_owner(connection: SqliteConnection) -> None:
    tables = _tables(connection)  # first: another process may be creating the tables and the application id together
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    if owner != APPLICATION_ID and (owner or tables):
        raise NotKeelbolt


def _tables(connection: SqliteConnection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return int(count)


def _applied(connection: SqliteConnection) -> list[tuple[int, str]]:
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migration'").fetchone():
        return []
    return [(number, checksum) for number, checksum in connection.execute("SELECT number, checksum FROM migration")]


def known_boot(connection: SqliteConnection) -> str | None:
    """Return the id of the boot in which this file was last opened."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'boot'").fetchone()
    return row[0] if row else None


def engine_offset(connection: SqliteConnection, clock: Clock) -> int:
    """Return the microseconds to add to the steady clock to get the engine's time.

    The first process of a boot fixes it, so that later jumps of the wall clock move no lease. A new boot means that all
    processes of the old one are gone: their leases end. Call it in a transaction.
    """
    meta: dict[str, Any] = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    boot, offset = meta.get("boot"), meta.get("offset", 0)
    if boot is not None and meta.get("clock_crc") != crc32(f"{boot}\0{offset}".encode()):
        raise StorageCorrupt.of("the file's clock")
    if boot != clock.boot():
        boot, offset = clock.boot(), clock.wall() - clock.steady()
        connection.execute(SQL["set_meta"], ("boot", boot))
        connection.execute(SQL["set_meta"], ("offset", offset))
        connection.execute(SQL["set_meta"], ("clock_crc", crc32(f"{boot}\0{offset}".encode())))
        connection.execute("UPDATE worker SET lease_until = 0")
    return int(offset)


def cannot_open(error: BaseException) -> StorageError:
    translated = translate(error) if isinstance(error, sqlite3.Error) else StorageCorrupt()
    if isinstance(translated, StorageCorrupt):
        return StorageCorrupt("the file is damaged, or not a database; restore it from a backup or choose another file")
    if isinstance(translated, StorageError):
        return translated
    return CannotOpen()


# -------------------------------------------------------------------------------------------------------------- catalog


def load_catalog(connection: SqliteConnection, known: Catalog) -> Catalog:
    """Return the catalog of the file, or ``known`` if it has not changed."""
    row = connection.execute(SQL["catalog_version"]).fetchone()
    version = row[0] if row else 0
    if version == known.version:
        return known
    rows = connection.execute(SQL["list_collections"]).fetchall()
    return Catalog(version, {name: (CheckedCollection.load(name, text), number * SLOTS) for number, name, text in rows})


def declare(connection: SqliteConnection, catalog: Catalog, shape: CheckedCollection) -> Catalog:
    """Store a declaration; a changed one rebuilds its indexes and counters in this transaction."""
    known = catalog.shapes.get(shape.name)
    if known is not None and known[0].dump() == shape.dump():
        return catalog
    (number,) = connection.execute(SQL["put_collection"], (shape.name, shape.dump())).fetchone()
    base = number * SLOTS
    if known is not None:
        connection.execute(SQL["clear_indexes"], (base, base + SLOTS - 1))
        connection.execute(SQL["clear_counters"], (base, base + SLOTS - 1))
        _rebuild(connection, shape, base)
    connection.execute(SQL["set_meta"], ("catalog", catalog.version + 1))
    return load_catalog(connection, catalog)


def _rebuild(connection: SqliteConnection, shape: CheckedCollection, base: int) -> None:
    last = 0
    while rows := connection.execute(SQL["all_of_collection"], (shape.name, last, REBUILD_ROWS)).fetchall():
        changes = IndexChanges[int]()
        for record, partition, key, text in rows:
            changes.add((shape, base), record, partition, key, load_fields(text))
        connection.executemany(SQL["insert_index"], changes.added)
        connection.executemany(SQL["add_to_counter"], changes.counted())
        last = rows[-1][0]
