"""A store of an older version opens with all its data."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from keelbolt.errors import SchemaTooNew, StorageError
from keelbolt.kernel import Collection, Index, Insert, Patch, Put, Query, open_storage
from keelbolt.kernel.declarations import CheckedCollection
from keelbolt.kernel.migrations import Migration, migrations_of
from keelbolt.kernel.postgres import schema as schema_module
from keelbolt.kernel.urls import pending_migrations
from keelbolt.testing.postgres import OwnPostgres, own_postgres

DOCS = Collection(
    "doc",
    fields={"state": str, "updated": int},
    indexes=(Index("newest", order="updated"), Index("by_state", equal=("state",), order="updated")),
    counters=((), ("state",)),
)
PLAIN = Collection("plain")
RECORDS = 2500  # more than one page of a rebuild
LONG = "k" * 1500


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as started:
        yield started


@pytest.fixture
def url(server: OwnPostgres) -> Iterator[str]:
    with server.database() as made:
        yield made


def make_version_3(server: OwnPostgres, url: str) -> None:
    """Create a store of schema version 3, with index entries in a separate table."""
    server.execute("CREATE SCHEMA keelbolt", url=url)
    server.execute(schema_module._APPLIED.format(schema="keelbolt"), url=url)
    for migration in migrations_of("keelbolt.kernel.postgres")[:3]:
        _apply(server, url, migration)
    number = server.execute(
        "INSERT INTO keelbolt.collection (name, declaration) VALUES ('doc', $1) RETURNING id",
        CheckedCollection(DOCS).dump(),
        url=url,
    )[0][0]
    server.execute(
        "INSERT INTO keelbolt.collection (name, declaration) VALUES ('plain', $1)",
        CheckedCollection(PLAIN).dump(),
        url=url,
    )
    server.execute("UPDATE keelbolt.meta SET value = '2' WHERE name = 'catalog'", url=url)
    server.execute("INSERT INTO keelbolt.partition VALUES ('p'), ('q')", url=url)
    server.execute(
        "INSERT INTO keelbolt.record (partition, collection, name, version, fields, body) SELECT "
        "CASE WHEN n % 2 = 0 THEN 'p' ELSE 'q' END, 'doc', 'key' || n, 3, "
        """'{"state":"' || CASE WHEN n % 5 = 0 THEN 'done' ELSE 'open' END || '","updated":' || n || '}', 'x'::bytea """
        "FROM generate_series(0, $1 - 1) AS n",
        RECORDS,
        url=url,
    )
    server.execute(
        "INSERT INTO keelbolt.record_index SELECT $1, (partition || name)::bytea, name FROM keelbolt.record",
        number * 8,
        url=url,
    )
    server.execute("INSERT INTO keelbolt.counter VALUES ($1, 'wrong'::bytea, 3, 17)", number * 8, url=url)
    server.execute(
        "INSERT INTO keelbolt.record (partition, collection, name, version, fields, body) "
        "VALUES ('p', 'plain', 'a', 1, '', 'x'::bytea)",
        url=url,
    )


def _apply(server: OwnPostgres, url: str, migration: Migration) -> None:
    async def run() -> None:
        import asyncpg

        connection = await asyncpg.connect(url)
        await connection.execute(migration.sql.replace("{schema}", "keelbolt"))
        await connection.close()

    asyncio.run(run())
    server.execute(
        "INSERT INTO keelbolt.migration (number, name, checksum) VALUES ($1, $2, $3)",
        *(migration.number, migration.name, migration.checksum),
        url=url,
    )


async def test_entries_move_into_the_records(server: OwnPostgres, url: str) -> None:
    """After migration 4 every index and counter is correct in each partition, also after more writes."""
    await asyncio.to_thread(make_version_3, server, url)
    assert 4 in [migration.number for migration in await asyncio.to_thread(pending_migrations, url)]
    async with open_storage(url, declare=[DOCS, PLAIN]) as kernel:
        assert [problem async for problem in kernel.check()] == []
        newest = Query("doc", order="updated", newest_first=True)
        page = await kernel.find("p", newest, limit=2)
        assert [record.key for record in page.records] == [f"key{RECORDS - 2}", f"key{RECORDS - 4}"]
        page = await kernel.find("p", newest, limit=2, cursor=page.cursor)
        assert [record.key for record in page.records] == [f"key{RECORDS - 6}", f"key{RECORDS - 8}"]
        done = Query("doc", equal={"state": "done"}, order="updated")
        assert (await kernel.count("p", done)).value == RECORDS / 10
        found = await kernel.find("q", done, limit=1000)
        assert [record.fields["updated"] for record in found.records] == list(range(5, RECORDS, 10))
        assert (await kernel.get("p", "plain", "a")) is not None
        await kernel.commit("p", Patch("doc", "key0", {"state": "open"}))
        assert (await kernel.count("p", done)).value == RECORDS / 10 - 1
        record = await kernel.get("p", "doc", "key0")
        assert record is not None
        assert (record.body, record.version) == (b"x", 4)
        await kernel.commit("p", Put("doc", "key0", b"y", {"state": "done", "updated": 0}), Insert("doc", LONG, b"z"))
        assert [problem async for problem in kernel.check()] == []


async def test_many_processes_migrate_at_once(server: OwnPostgres, url: str) -> None:
    """One of them migrates, the others wait and find it done."""
    await asyncio.to_thread(make_version_3, server, url)

    async def use(number: int) -> None:
        async with open_storage(url, declare=[DOCS, PLAIN]) as kernel:
            await kernel.commit("p", Put("doc", f"new{number}", b"", {"state": "open", "updated": number}))

    await asyncio.gather(*(use(number) for number in range(4)))
    async with open_storage(url, declare=[DOCS, PLAIN]) as kernel:
        assert [problem async for problem in kernel.check()] == []


async def test_a_process_of_the_previous_version_can_not_write(
    server: OwnPostgres, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a process takes other locks, so its commits must fail, not interleave with those of new processes."""
    async with open_storage(url, declare=[PLAIN]) as kernel:
        await kernel.commit("p", Put("plain", "a", b"1"))
        sql = kernel._committer._sql  # type: ignore[attr-defined]
        monkeypatch.setitem(sql, "begin", sql["begin"].replace("keelbolt.committed", "keelbolt.batch"))
        with pytest.raises(StorageError):
            await kernel.commit("p", Put("plain", "a", b"2"))
    monkeypatch.setattr(schema_module, "migrations_of", lambda package: migrations_of(package)[:3])
    with pytest.raises(SchemaTooNew):
        async with open_storage(url, declare=[PLAIN]):
            pass
