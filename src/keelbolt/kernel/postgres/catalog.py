"""The catalog in the database."""

from __future__ import annotations

from keelbolt.kernel.catalog import REBUILD_ROWS, SLOTS, Catalog
from keelbolt.kernel.declared import CheckedCollection, load_fields
from keelbolt.kernel.postgres.connection import ISOLATION, SLOW_SECONDS, Connection
from keelbolt.kernel.postgres.entries import Place, Totals, entries_of


async def load_catalog(connection: Connection, sql: dict[str, str], known: Catalog) -> Catalog:
    """Load the catalog from the database; return ``known`` if its version is current."""
    version = int(await connection.fetchval(sql["catalog_version"]))
    if version == known.version:
        return known
    rows = await connection.fetch(sql["list_collections"])
    return Catalog(version, {name: (CheckedCollection.load(name, text), number * SLOTS) for number, name, text in rows})


async def declare(connection: Connection, sql: dict[str, str], shape: CheckedCollection, *, lock: int) -> Catalog:
    """Store a declaration. A changed one rebuilds its indexes and counters while no batch is being written."""
    async with connection.transaction(isolation=ISOLATION):
        await connection.execute("SELECT pg_advisory_xact_lock($1)", lock)
        catalog = await load_catalog(connection, sql, Catalog())
        known = catalog.shapes.get(shape.name)
        if known is not None and known[0].dump() == shape.dump():
            return catalog
        base = SLOTS * await connection.fetchval(sql["put_collection"], shape.name, shape.dump())
        if known is not None:
            await connection.execute("SET LOCAL statement_timeout = 0")
            await rebuild(connection, sql, (shape, base))
        await connection.execute(sql["set_meta"], "catalog", str(catalog.version + 1))
        return await load_catalog(connection, sql, Catalog())


async def rebuild(connection: Connection, sql: dict[str, str], place: Place) -> None:
    """Rebuild the index entries and counters of a collection in the caller's transaction."""
    shape, base = place
    await connection.execute(sql["clear_counters"], base, base + SLOTS - 1, timeout=SLOW_SECONDS)
    after = ("", "")
    totals = Totals()
    while rows := await connection.fetch(sql["all_of_collection"], shape.name, *after, REBUILD_ROWS):
        values = []
        for partition, name, key, text in rows:
            fields = load_fields(text)
            values.append((partition, name, *entries_of(place, partition, key, fields)))
            totals.add(place, partition, fields, 1)
        await connection.execute(sql["set_entries"], shape.name, *zip(*values, strict=True))
        after = (rows[-1][0], rows[-1][1])
    if columns := totals.columns():
        await connection.execute(sql["add_to_counters"], *columns, 0)
