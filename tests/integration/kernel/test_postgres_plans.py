"""Plans on tables without statistics: every statement of the hot path looks up rows by their keys.

A new store and a restored one have no statistics until autovacuum or ANALYZE has run.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from keelbolt.kernel import open_storage
from keelbolt.kernel.postgres.connection import reader_settings, set_local, statements
from keelbolt.kernel.postgres.rows import PostgresRows
from keelbolt.testing.postgres import OwnPostgres, own_postgres

RECORDS = 50_000
SCHEMA = "keelbolt"
SQL = statements(SCHEMA)

# Statements that read whole tables, or that run when a storage is opened, declared, checked, measured or swept.
WHOLE = {
    "stats_records",
    "stats_work",
    "stats_rest",
    "stats_server",
    "check_streams",
    "check_orphans",
    "count_records",
    "count_entries",
    "sum_counter",
    "list_collections",
    "all_of_collection",
    "delete_idle_workers",
}

# Reads outside of a transaction: behind PgBouncer they run with the server's default settings.
READS = {
    "get_records",
    *(f"{name}_{number}" for name in ("scan_up", "scan_down", "count_range") for number in range(4)),
    "get_counter",
    "read_up",
    "read_down",
    "get_stream",
    "get_seq",
    "changed_heads",
    "get_work",
    "list_work",
    "find_blob",
    "get_chunk",
    "list_partitions",
    "expired_records",
}

FILL = """
INSERT INTO keelbolt.record (partition, collection, name, version, fields, body, e0, e1, e2, e3)
    SELECT 'p' || n % 2, 'doc', 'key' || n, 1, '', repeat('x', 300)::bytea, entry, entry, entry, entry
    FROM generate_series(1, {n}) AS n, LATERAL (SELECT ('key' || n)::bytea) AS e (entry);
INSERT INTO keelbolt.stream (id, partition, log, name, head, floor)
    SELECT n, 'p' || n % 2, 'log', 'key' || n, 1, 0 FROM generate_series(1, {n}) AS n;
INSERT INTO keelbolt.entry (stream, seq, at, kind, data)
    SELECT n, 1, 0, 'note', repeat('x', 100)::bytea FROM generate_series(1, {n}) AS n;
INSERT INTO keelbolt.dedupe (stream, name, seq) SELECT n, 'once', 1 FROM generate_series(1, {n}) AS n;
INSERT INTO keelbolt.work
        (partition, queue, name, state, lane, priority, ready_at, attempt, max_attempts, fence, holder)
    SELECT 'p' || n % 2, 'q', 'key' || n, (ARRAY['ready', 'held', 'later', 'dead'])[n % 4 + 1], 'p' || n % 2, 0, n, 0,
           5, n, CASE WHEN n % 4 = 1 THEN 'worker' || n % 100 END
    FROM generate_series(1, {n}) AS n;
INSERT INTO keelbolt.blob (partition, digest, size, expires_at)
    SELECT 'p' || n % 2, 'digest' || n, 1, CASE WHEN n % 2 = 0 THEN n END FROM generate_series(1, {n}) AS n;
INSERT INTO keelbolt.blob_chunk (blob, number, sha256, data)
    SELECT n, 0, 'x'::bytea, repeat('x', 300)::bytea FROM generate_series(1, {n}) AS n;
INSERT INTO keelbolt.holding (partition, digest, holder)
    SELECT 'p' || n % 2, 'digest' || n, 'holder' FROM generate_series(1, {n}) AS n;
INSERT INTO keelbolt.counter (index, grp, shard, total)
    SELECT 8, ('group' || n)::bytea, 0, 1 FROM generate_series(1, {n}) AS n;
INSERT INTO keelbolt.partition (name) SELECT 'p' || n FROM generate_series(1, {n}) AS n;
INSERT INTO keelbolt.committed (id, at) SELECT gen_random_uuid(), n FROM generate_series(1, {n}) AS n;
"""
LARGE = ("record", "stream", "entry", "dedupe", "work", "blob", "blob_chunk", "holding", "committed")


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres(settings={"autovacuum": "off"}) as started:
        yield started


@pytest.fixture(scope="module", params=[0, RECORDS], ids=["empty", "full"])
def url(request: pytest.FixtureRequest, server: OwnPostgres) -> Iterator[str]:
    """Fill a store. A session that plans while its tables are empty keeps the plan when they grow."""
    with server.database() as made:
        asyncio.run(_open(made))
        for statement in FILL.format(n=request.param).split(";\n")[:-1]:
            server.execute(statement, url=made)
        yield made


async def _open(url: str) -> None:
    async with open_storage(url):
        pass


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Any]:
    opened = await asyncpg.connect(url, statement_cache_size=0)
    assert not await opened.fetchval("SELECT count(*) FROM pg_statistic WHERE starelid = 'keelbolt.record'::regclass")
    async with opened.transaction():
        yield opened
    await opened.close()


async def whole_scans(connection: Any, name: str) -> list[str]:
    """Return the nodes of a statement's generic plan that read all of a large table."""
    sql = SQL.get(name, name)
    count = max(map(int, re.findall(r"\$(\d+)", sql)), default=0)
    nulls = f"({', '.join(['NULL'] * count)})" if count else ""
    await connection.execute(f"PREPARE tested AS {sql}")
    try:
        text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE tested{nulls}")
    finally:
        await connection.execute("DEALLOCATE tested")
    return list(scans_in(json.loads(text)[0]["Plan"]))


def scans_in(plan: dict[str, Any]) -> Iterator[str]:
    node, table = plan["Node Type"], plan.get("Relation Name")
    by_key = "Index Cond" in plan or "Recheck Cond" in plan
    # Without a condition, only an index in the requested order can end early.
    if table in LARGE and node != "ModifyTable" and not by_key and (node == "Seq Scan" or "Filter" in plan):
        yield f"{node} on {table}"
    if node in ("Hash Join", "Merge Join"):
        yield node
    for child in plan.get("Plans", ()):
        yield from scans_in(child)


async def test_statements_need_no_statistics(connection: Any) -> None:
    """With the settings of our sessions, no statement reads all of a table of 50,000 rows without statistics."""
    await connection.execute(set_local(reader_settings()))
    scans = {name: await whole_scans(connection, name) for name in sorted(SQL.keys() - WHOLE)}
    assert not {name: found for name, found in scans.items() if found}


async def test_several_statements_as_one_need_no_statistics(connection: Any) -> None:
    """A batch saves its data with one statement that is composed of others."""
    names = (
        *("insert_records", "change_records", "insert_streams", "move_heads", "insert_entries", "put_work"),
        *("delete_work", "begin_leases", "add_to_counters"),
    )
    counts = {name: range(max(map(int, re.findall(r"\$(\d+)", SQL[name])))) for name in names}
    sql = PostgresRows(connection, dict(SQL), shard=0)._together(names, counts)
    await connection.execute(set_local(reader_settings()))
    assert not await whole_scans(connection, sql)


async def test_reads_need_no_settings(connection: Any) -> None:
    """Behind a transaction pooler a plain read runs without our settings, and still looks up rows by their keys."""
    await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    scans = {name: await whole_scans(connection, name) for name in sorted(READS)}
    assert not {name: found for name, found in scans.items() if found}


@pytest.mark.parametrize("keys", [1, 64, 1000])
async def test_reads_with_known_values_need_no_statistics(connection: Any, keys: int) -> None:
    """A plan for actual values also looks up rows by key, however many values there are."""
    names = [f"key{number}" for number in range(keys)]
    for name, values in {
        "get_records": ("p1", "doc", names),
        "changed_heads": (["p1"] * keys, ["log"] * keys, names, [0] * keys),
        "read_up": (["p1"] * keys, ["log"] * keys, names, [0] * keys, [9] * keys, [9] * keys, [9] * keys),
    }.items():
        text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {SQL[name]}", *values)
        assert not list(scans_in(json.loads(text)[0]["Plan"])), name
