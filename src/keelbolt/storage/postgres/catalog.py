"""The catalog in the database."""

from __future__ import annotations

from keelbolt.storage.catalog import REBUILD_ROWS, SLOTS, Catalog, IndexChanges
from keelbolt.storage.declared import Shape, load_fields
from keelbolt.storage.postgres.connection import ISOLATION, SLOW_SECONDS, Connection
from keelbolt.storage.postgres.entries import index_changes


async def load_catalog(connection: Connection, sql: dict[str, str], known: Catalog) -> Catalog:
    """The catalog as it is in the database; the known one, when that has not changed."""
    version = int(await connection.fetchval(sql["catalog_version"]))
    if version == known.version:
        return known
    rows = await connection.fetch(sql["list_collections"])
    return Catalog(version, {name: (Shape.load(name, text), number * SLOTS) for number, name, text in rows})


async def declare(connection: Connection, sql: dict[str, str], shape: Shape, *, lock: int) -> Catalog:
    """Store a declaration; a changed one rebuilds its indexes and counters, while no batch is being written."""
    async with connection.transaction(isolation=ISOLATION):
        await connection.execute("SELECT pg_advisory_xact_lock($1)", lock)
        catalog = await load_catalog(connection, sql, Catalog())
        known = catalog.shapes.get(shape.name)
        if known is not None and known[0].dump() == shape.dump():
            return catalog
        base = SLOTS * await connection.fetchval(sql["put_collection"], shape.name, shape.dump())
        if known is not None:
            await connection.execute("SET LOCAL statement_timeout = 0")
            await connection.execute(sql["clear_indexes"], base, base + SLOTS - 1, timeout=SLOW_SECONDS)
            await connection.execute(sql["clear_counters"], base, base + SLOTS - 1, timeout=SLOW_SECONDS)
            await _rebuild(connection, sql, shape, base)
        await connection.execute(sql["set_meta"], "catalog", str(catalog.version + 1))
        return await load_catalog(connection, sql, Catalog())


async def _rebuild(connection: Connection, sql: dict[str, str], shape: Shape, base: int) -> None:
    place = ("", "")
    while rows := await connection.fetch(sql["all_of_collection"], shape.name, *place, REBUILD_ROWS):
        changes = index_changes()
        for partition, name, key, text in rows:
            changes.add((shape, base), name, partition, key, load_fields(text))
        if changes.added:
            await connection.execute(sql["insert_index"], *zip(*changes.added, strict=True))
        await add_counters(connection, sql, changes)
        place = (rows[-1][0], rows[-1][1])


async def add_counters(
    connection: Connection, sql: dict[str, str], changes: IndexChanges[str], *, shard: int = 0
) -> None:
    if counted := changes.counted():
        numbers, groups, totals = zip(*counted, strict=True)
        await connection.execute(sql["add_to_counters"], numbers, groups, shard, totals)
