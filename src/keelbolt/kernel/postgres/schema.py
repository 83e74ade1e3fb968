"""Creates Keelbolt's schema in a database and applies migrations."""

from __future__ import annotations

import asyncio

from keelbolt.errors import CannotOpen, InvalidValue
from keelbolt.kernel.catalog import Catalog
from keelbolt.kernel.migrations import Migration, migrations_of, unapplied
from keelbolt.kernel.postgres.catalog import load_catalog, rebuild
from keelbolt.kernel.postgres.connection import (
    ERRORS,
    ISOLATION,
    OLDEST,
    OPEN_SECONDS,
    RESERVED,
    Connection,
    close_quietly,
    connect,
    opening_error,
    plain_url,
    statements,
)

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
