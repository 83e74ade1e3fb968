"""Prepares a database: checks the server, creates Keelbolt's schema, applies migrations, stores the catalog.

Databases that speak PostgreSQL's protocol can differ without an error: advisory locks that lock nothing, and sequences
cached per session, so that a later number can be lower. Work would silently be lost or repeated, so `prove` checks
both.
"""

from __future__ import annotations

import asyncio
import random

from keelbolt.errors import CannotOpen, InvalidValue
from keelbolt.kernel.declarations import REBUILD_ROWS, SLOTS, Catalog, CheckedCollection, load_fields
from keelbolt.kernel.migrations import Migration, migrations_of, unapplied
from keelbolt.kernel.postgres.connection import (
    BEGIN,
    CONNECT_SECONDS,
    ERRORS,
    ISOLATION,
    MISSING,
    OLDEST,
    OPEN_SECONDS,
    RESERVED,
    SLOW_SECONDS,
    Connection,
    close_quietly,
    connect,
    opening_error,
    plain_url,
    statements,
)
from keelbolt.kernel.postgres.rows import Place, Totals, entries_of

_APPLIED = """CREATE TABLE IF NOT EXISTS {schema}.migration (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""
_MIGRATED = "SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'migration'"
_ENTRIES = 4  # the migration that stores index entries in the records
_LOCK = 0x484F4C44  # advisory lock: one migration at a time per database


async def pending(connection: Connection, schema: str) -> list[Migration]:
    """Return the migrations that `prepare_schema` would apply, without applying them."""
    statements(schema)
    version = connection.get_server_version().major
    if version < OLDEST:
        raise CannotOpen(f"this is PostgreSQL {version}; Keelbolt needs {OLDEST} or later")
    known = migrations_of("keelbolt.kernel.postgres")
    # Not to_regclass(): it may have cached a negative result from before this connection waited for its lock.
    if not await connection.fetchval(_MIGRATED, schema):
        return known
    rows = await connection.fetch(f"SELECT number, checksum FROM {schema}.migration")
    return unapplied(known, [(row[0], row[1]) for row in rows])


async def prepare_schema(connection: Connection, schema: str) -> list[Migration]:
    """Apply the missing migrations in one transaction under a lock, and return them."""
    if not await pending(connection, schema):
        return []
    async with connection.transaction(isolation=ISOLATION):
        await connection.execute(f"SET LOCAL lock_timeout = '{OPEN_SECONDS / 2}s'")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        missing = await pending(connection, schema)
        if not missing:
            return []
        if not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema):
            try:
                await connection.execute(f"CREATE SCHEMA {schema}")  # IF NOT EXISTS needs the CREATE privilege
            except RESERVED:
                raise InvalidValue(
                    f"{schema!r} is a reserved word of SQL and can't name the schema; choose another name"
                ) from None
        await connection.execute(_APPLIED.format(schema=schema))
        for migration in missing:
            await connection.execute(migration.sql.replace("{schema}", schema))
            await connection.execute(
                f"INSERT INTO {schema}.migration (number, name, checksum) VALUES ($1, $2, $3)",
                migration.number,
                migration.name,
                migration.checksum,
            )
        if _ENTRIES in {migration.number for migration in missing}:
            await _fill_entries(connection, statements(schema))
    return missing


async def _fill_entries(connection: Connection, sql: dict[str, str]) -> None:
    """Fill the columns of migration 4, whose encoding SQL can't produce."""
    for place in (await load_catalog(connection, sql, Catalog())).shapes.values():
        await rebuild(connection, sql, place)


def migrate(url: str, schema: str, *, dry_run: bool) -> list[Migration]:
    """Return the missing migrations, and apply them unless ``dry_run``. For the command line."""

    async def run() -> list[Migration]:
        connection = None
        try:
            connection = await connect(plain_url(url), pooled=True, seconds=OPEN_SECONDS)
            return await (pending(connection, schema) if dry_run else prepare_schema(connection, schema))
        except ERRORS as error:
            raise opening_error(error, url) from error
        finally:
            await close_quietly(connection)

    return asyncio.run(run())


def run_script(url: str, schema: str, sql: str) -> None:
    """Run SQL of a face in an existing schema, in one transaction."""

    async def run() -> None:
        connection = None
        try:
            connection = await connect(plain_url(url), pooled=True, seconds=OPEN_SECONDS)
            if await pending(connection, schema):
                raise CannotOpen("this storage does not have this program's schema; run keelbolt migrate first")
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
                await connection.execute(sql.replace("{schema}", schema))
        except ERRORS as error:
            raise opening_error(error, url) from error
        finally:
            await close_quietly(connection)

    asyncio.run(run())


# -------------------------------------------------------------------------------------------------------------- catalog


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


# --------------------------------------------------------------------------------------------------------- server check


async def prove(first: Connection, second: Connection, sql: dict[str, str]) -> None:
    """Raise CannotOpen unless locks exclude each other and ids increase across these two connections."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.gather(first.execute(BEGIN), second.execute(BEGIN))
    except TimeoutError:
        raise CannotOpen(
            "this server, or the pooler before it, allows only one connection at a time; Keelbolt needs at least two"
        ) from None
    try:
        await _prove(first, second, sql)
    except MISSING as error:
        raise CannotOpen(
            "this server is not PostgreSQL and has no transaction-level advisory locks; Keelbolt needs them"
        ) from error
    finally:
        await asyncio.gather(first.execute("ROLLBACK"), second.execute("ROLLBACK"))


async def _prove(first: Connection, second: Connection, sql: dict[str, str]) -> None:
    locks = [random.getrandbits(62) for _ in range(2)]  # random, so that no other process uses the same
    low = (await first.fetchrow(sql["prove_locks"], *locks))[0]
    shared, exclusive, middle = await second.fetchrow(sql["try_locks"], *locks)
    if shared or exclusive:
        raise CannotOpen(
            "advisory locks of this server are not exclusive: two connections got the same one, so two "
            "processes could overwrite each other's data; use PostgreSQL, or a version of this database that has "
            "advisory locks"
        )
    high = await first.fetchval(sql["next_ids"])
    await first.execute("ROLLBACK")
    shared, exclusive, last = await second.fetchrow(sql["try_locks"], *locks)
    if not (shared and exclusive):
        raise CannotOpen(
            "this server does not release advisory locks when their transaction ends; Keelbolt needs that. "
            "Use PostgreSQL"
        )
    if not low < middle < high < last:
        raise CannotOpen(
            "sequences of this server do not increase across connections: a later number was lower, so a "
            "worker that lost its lease could still write. Set the sequence's cache to 1, and turn off sequence "
            "caching in the server"
        )
