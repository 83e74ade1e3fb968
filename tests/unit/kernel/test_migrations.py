"""Migrations: applied once, in order, never changed; a newer schema is not touched."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from keelbolt.errors import KeelboltError, NotKeelbolt, SchemaMismatch, SchemaTooNew, StorageMissing
from keelbolt.kernel import Append, Collection, Delete, Draft, Index, LogState, Put, Query, Trim, Version
from keelbolt.kernel.migrations import Migration, migrations_of, queries_of, unapplied
from keelbolt.kernel.sqlite import schema
from keelbolt.kernel.urls import migrate, open_storage, pending_migrations
from keelbolt.state.views import create_views

PACKAGE = "keelbolt.kernel.sqlite"
FIRST, SECOND, THIRD = (Migration(number, f"step_{number}", f"CREATE TABLE t{number} (a);") for number in (1, 2, 3))


def applied(*migrations: Migration) -> list[tuple[int, str]]:
    return [(migration.number, migration.checksum) for migration in migrations]


# ------------------------------------------------------------------------------------------------------ the decision


def test_missing_migrations_are_in_order() -> None:
    known = [FIRST, SECOND, THIRD]
    assert unapplied(known, []) == known
    assert unapplied(known, applied(FIRST)) == [SECOND, THIRD]
    assert unapplied(known, applied(THIRD, FIRST)) == [SECOND]
    assert unapplied(known, applied(*known)) == []


def test_a_changed_migration_is_refused() -> None:
    changed = Migration(1, FIRST.name, FIRST.sql + " ")
    with pytest.raises(SchemaMismatch, match=r"migration 1 \(step_1\).*use the program version that made it"):
        unapplied([FIRST, SECOND], applied(changed))


def test_a_newer_schema_is_refused() -> None:
    with pytest.raises(SchemaTooNew, match=r"schema 3, this program supports 2; upgrade .* Nothing was changed"):
        unapplied([FIRST, SECOND], applied(FIRST, SECOND, THIRD))


def test_the_files_are_numbered_without_gaps() -> None:
    known = migrations_of(PACKAGE)
    assert [migration.number for migration in known] == list(range(1, len(known) + 1))
    assert all(re.fullmatch(r"[a-z_]+", migration.name) for migration in known)
    assert known[0].checksum == hashlib.sha256(known[0].sql.encode()).hexdigest()


# ----------------------------------------------------------------------------------------------------- named queries


def test_named_queries_are_read_without_their_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_engine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "queries.sql").write_text(
        "-- About this file.\n\n-- one\nSELECT 1;\n\n-- two\n-- Why.\nSELECT 2\nFROM t\n\n\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert queries_of("some_engine") == {"one": "SELECT 1", "two": "SELECT 2\nFROM t"}


def test_every_named_query_is_used_and_every_used_one_exists() -> None:
    queries = queries_of(PACKAGE)
    code = "".join(path.read_text() for path in Path(schema.__file__).parent.glob("*.py"))
    named = set(re.findall(r'SQL\["(\w+)"\]', code)) | set(re.findall(r'_(?:many|rows)\(\s*"(\w+)"', code))
    chosen = re.findall(r'SQL\[\s*"(\w+)" if \w+ else "(\w+)"\s*\]', code)
    named |= {name for pair in chosen for name in pair}
    if 'SQL[f"list_{state}"]' in code:
        named |= {"list_waiting", "list_held", "list_dead"}
    assert named - set(queries) == set(), "these are not in queries.sql"
    assert set(queries) - named == set(), "unused queries in queries.sql"


def test_every_named_query_can_be_prepared(tmp_path: Path) -> None:
    """The queries are prepared on the schema that the migrations create."""
    path = tmp_path / "file.db"
    migrate(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(queries_of(PACKAGE)["watch_none"])  # a temporary table
        for name, sql in queries_of(PACKAGE).items():
            columns = {"load_dedupes": 2, "load_blobs": 2}.get(name, 3)
            text = sql.format(keys=f"({', '.join('?' * columns)})") if "{keys}" in sql else sql
            connection.execute(f"EXPLAIN {text}", (None,) * text.count("?")).fetchall()


def test_no_query_has_numbered_marks() -> None:
    """Python 3.14 treats ?1 as a name, and refuses a sequence of values for it."""
    for file in Path(schema.__file__).parent.glob("*.sql"):
        text = re.sub(r"^--.*$", "", file.read_text(), flags=re.MULTILINE)
        assert re.findall(r"\?\d", text) == [], file.name


# -------------------------------------------------------------------------------------------------------- on a file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.db"


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> list[Migration]:
    """The program's migrations, which a test may add to."""
    known = migrations_of(PACKAGE)
    monkeypatch.setattr(schema, "migrations_of", lambda _package: known)
    return known


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def test_pending_lists_and_migrate_applies(path: Path) -> None:
    url = f"sqlite:///{path}"
    known = migrations_of(PACKAGE)
    assert pending_migrations(url) == known
    assert not path.exists()
    assert migrate(url) == known
    assert pending_migrations(url) == migrate(url) == []
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT number, name, checksum FROM migration ORDER BY number").fetchall()
    assert rows == [(migration.number, migration.name, migration.checksum) for migration in known]


def test_an_empty_file_is_a_new_database(path: Path) -> None:
    path.touch()
    assert pending_migrations(f"sqlite:///{path}") == migrate(f"sqlite:///{path}") == migrations_of(PACKAGE)


async def test_an_older_file_is_brought_up_to_date_by_opening_it(path: Path, extended: list[Migration]) -> None:
    url = f"sqlite:///{path}"
    migrate(url)
    number = extended[-1].number
    extended.append(Migration(number + 1, "notes", "CREATE TABLE notes (a);\n-- Two; of them.\nCREATE TABLE more (b);"))
    extended.append(Migration(number + 2, "index", "CREATE INDEX more_b ON more (b);"))
    assert pending_migrations(url) == extended[-2:]
    async with open_storage(url) as kernel:
        assert (await kernel.stats()).engine["schema"] == number + 2
    assert {"notes", "more"} <= tables(path)
    assert migrate(url) == []


async def test_a_file_with_the_partition_first_is_rebuilt(path: Path, extended: list[Migration]) -> None:
    """Migration 4 rebuilds records and streams; all data, indexes and views are kept."""
    url = f"sqlite:///{path}"
    later = extended[3:]
    del extended[3:]
    notes = Collection("note", {"rank": int}, (Index("by_rank", order="rank"),), expiring=True)
    async with open_storage(url, declare=[notes]) as kernel:
        for owner in ("a", "b"):
            await kernel.commit(
                owner,
                *(Put("note", f"k{n}", b"%d" % n, {"rank": n}, expires_in=600.0) for n in range(50)),
                Append("log", "s", (Draft("made", b"1", "once"), Draft("made", b"2"))),
            )
        await kernel.commit("a", Delete("note", "k7"), Trim("log", "s", 1))
    create_views(url)
    extended += later
    assert migrate(url) == later
    async with open_storage(url, declare=[notes]) as kernel:
        found = (await kernel.find("a", Query("note", order="rank"), limit=100)).records
        assert [record.body for record in found] == [b"%d" % n for n in range(50) if n != 7]
        assert (await kernel.count("b", Query("note", order="rank"))).value == 50
        assert await kernel.log_state("a", "log", "s") == LogState(2, 1)
        assert await kernel.seq_of("b", "log", "s", "once") == 1
        await kernel.commit("a", Version("note", "k1", 1), Put("note", "k1", b"new", {"rank": 1}))
        assert [problem async for problem in kernel.check()] == []
    with closing(sqlite3.connect(path)) as connection:
        assert len(connection.execute("SELECT * FROM log").fetchall()) == 3
        assert connection.execute("SELECT count(*) FROM memory_states").fetchone() == (0,)


def test_a_failing_migration_changes_nothing(path: Path, extended: list[Migration]) -> None:
    """All missing migrations run in one transaction."""
    url = f"sqlite:///{path}"
    migrate(url)
    before = tables(path)
    number = extended[-1].number
    extended.append(Migration(number + 1, "good", "CREATE TABLE notes (a);"))
    extended.append(Migration(number + 2, "bad", "CREATE TABLE notes (a);"))
    with pytest.raises(KeelboltError):
        migrate(url)
    assert tables(path) == before
    del extended[-1]
    assert migrate(url) == extended[-1:]


async def test_a_file_of_a_newer_program_is_not_changed(path: Path, extended: list[Migration]) -> None:
    url = f"sqlite:///{path}"
    extended.append(Migration(extended[-1].number + 1, "future", "CREATE TABLE future (a);"))
    migrate(url)
    for beside in ("lock", "turn"):
        path.with_name(f"{path.name}-{beside}").unlink()
    del extended[-1]
    before = {place.name: place.read_bytes() for place in path.parent.iterdir()}
    for refuse in (pending_migrations, migrate):
        with pytest.raises(SchemaTooNew, match="Nothing was changed"):
            refuse(url)
    with pytest.raises(SchemaTooNew, match="upgrade this program"):
        await open_storage(url).open()
    assert {place.name: place.read_bytes() for place in path.parent.iterdir()} == before


async def test_a_file_with_another_migration_is_refused(path: Path) -> None:
    url = f"sqlite:///{path}"
    migrate(url)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE migration SET checksum = 'other' WHERE number = 1")
    for refuse in (pending_migrations, migrate):
        with pytest.raises(SchemaMismatch, match="use the program version that made it"):
            refuse(url)
    with pytest.raises(SchemaMismatch):
        await open_storage(url).open()


def test_pending_refuses_what_opening_refuses(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection, connection:
        connection.execute("CREATE TABLE theirs (a)")
    with pytest.raises(NotKeelbolt):
        pending_migrations(f"sqlite:///{foreign}")
    with pytest.raises(StorageMissing, match="is a directory"):
        pending_migrations(f"sqlite:///{tmp_path}")
    with pytest.raises(StorageMissing, match="create it first"):
        pending_migrations(f"sqlite:///{tmp_path}/none/file.db")
