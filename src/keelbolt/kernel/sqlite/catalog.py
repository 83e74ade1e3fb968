"""The catalog in the file."""

from __future__ import annotations

from keelbolt.kernel.catalog import REBUILD_ROWS, SLOTS, Catalog, IndexChanges
from keelbolt.kernel.declared import CheckedCollection, load_fields
from keelbolt.kernel.sqlite.connection import SQL, SqliteConnection


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
