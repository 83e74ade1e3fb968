"""Writes rows of a copy: COPY for the large tables, one statement for each of the others."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from keelbolt.kernel.catalog import Catalog
from keelbolt.kernel.declared import CheckedCollection, load_fields
from keelbolt.kernel.ledger import Key, stored_state
from keelbolt.kernel.postgres.catalog import declare, load_catalog
from keelbolt.kernel.postgres.connection import Connection, long, short
from keelbolt.kernel.postgres.entries import Totals, entries_of
from keelbolt.kernel.records import MAX_INDEXES
from keelbolt.kernel.transfer.rows import (
    BlobRow,
    ChunkRow,
    CollectionRow,
    EntryRow,
    HoldingRow,
    ItemRow,
    PartitionRow,
    RecordRow,
    StreamRow,
    Table,
)

KNOWN_STREAMS = 20_000

_ENTRIES = tuple(f"e{number}" for number in range(MAX_INDEXES))
_RECORD = ("partition", "collection", "name", "key", "version", "fields", "expires_at", "body", *_ENTRIES)


class PostgresLoader:
    """Writes rows into one schema. Each call runs in its caller's transaction."""

    def __init__(self, sql: dict[str, str], schema: str, lock: int) -> None:
        self._sql = sql
        self._schema = schema
        self._lock = lock
        self._catalog = Catalog()
        self._streams: dict[Key, int] = {}
        self._put: dict[Table, Callable[[Connection, Any], Awaitable[None]]] = {
            "collection": self._put_collections,
            "partition": self._put_partitions,
            "record": self._put_records,
            "stream": self._put_streams,
            "entry": self._put_entries,
            "work": self._put_work,
            "blob": self._put_blobs,
            "chunk": self._put_chunks,
            "holding": self._put_holdings,
        }

    async def put(self, connection: Connection, table: Table, rows: Sequence[Any]) -> None:
        await self._put[table](connection, rows)

    def forget(self) -> None:
        """Drop cached ids after a rollback or a wipe, because they may have changed."""
        self._streams.clear()
        self._catalog = Catalog()

    async def _many(self, connection: Connection, query: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            await connection.execute(self._sql[query], *zip(*rows, strict=True))

    async def _copy(
        self, connection: Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> None:
        await connection.copy_records_to_table(table, schema_name=self._schema, columns=columns, records=rows)

    async def _now(self, connection: Connection) -> int:
        return int(await connection.fetchval(self._sql["now"]))

    # ---------------------------------------------------------------------------------------------------- records

    async def _put_collections(self, connection: Connection, rows: Sequence[CollectionRow]) -> None:
        for row in rows:
            await declare(connection, self._sql, CheckedCollection.load(row.name, row.declaration), lock=self._lock)

    async def _put_partitions(self, connection: Connection, rows: Sequence[PartitionRow]) -> None:
        await connection.execute(self._sql["insert_partitions"], [row.name for row in rows])

    async def _put_records(self, connection: Connection, rows: Sequence[RecordRow]) -> None:
        now = await self._now(connection)
        self._catalog = await load_catalog(connection, self._sql, self._catalog)
        rows = [row for row in rows if row.collection in self._catalog.shapes]
        values = []
        totals = Totals()
        for row in rows:
            place, fields = self._catalog.shapes[row.collection], load_fields(row.fields)
            expires_at = None if row.expires_in is None else now + row.expires_in
            key = (row.partition, row.collection, short(row.key), long(row.key))
            entries = entries_of(place, row.partition, row.key, fields)
            values.append((*key, row.version, row.fields, expires_at, row.body, *entries))
            totals.add(place, row.partition, fields, 1)
        await self._copy(connection, "record", _RECORD, values)
        if columns := totals.columns():
            await connection.execute(self._sql["add_to_counters"], *columns, 0)
        await connection.execute(self._sql["insert_partitions"], sorted({row.partition for row in rows}))

    # ------------------------------------------------------------------------------------------------------- logs

    async def _put_streams(self, connection: Connection, rows: Sequence[StreamRow]) -> None:
        first = await connection.fetchval(self._sql["new_ids"])
        values = [
            (first + at, row.partition, row.log, short(row.stream), long(row.stream), row.head, row.floor)
            for at, row in enumerate(rows)
        ]
        await self._many(connection, "insert_streams", values)
        await connection.execute(self._sql["insert_partitions"], sorted({row.partition for row in rows}))

    async def _put_entries(self, connection: Connection, rows: Sequence[EntryRow]) -> None:
        places = await self._ids(connection, rows)
        rows = [row for row in rows if row[:3] in places]
        values = [(places[row[:3]], row.seq, row.at, row.kind, row.data) for row in rows]
        await self._copy(connection, "entry", ("stream", "seq", "at", "kind", "data"), values)
        dedupes = [
            (places[row[:3]], short(row.dedupe), long(row.dedupe), row.seq) for row in rows if row.dedupe is not None
        ]
        await self._many(connection, "insert_dedupes", dedupes)

    async def _ids(self, connection: Connection, rows: Sequence[EntryRow]) -> dict[Key, int]:
        """Return the ids of the streams of these entries."""
        if len(self._streams) > KNOWN_STREAMS:
            self._streams.clear()
        unknown = {row[:3]: None for row in rows if row[:3] not in self._streams}
        if unknown:
            by_name = dict(zip(_named(unknown), unknown, strict=True))
            found = await connection.fetch(self._sql["stream_ids"], *zip(*by_name, strict=True))
            self._streams |= {by_name[partition, log, name]: number for partition, log, name, number in found}
        return self._streams

    # ------------------------------------------------------------------------------------------------------- work

    async def _put_work(self, connection: Connection, rows: Sequence[ItemRow]) -> None:
        now = await self._now(connection)
        values = []
        for partition, queue, key, state, lane, priority, ready_in, attempt, most, fence, reason in rows:
            kept = stored_state(state, now + ready_in, now)
            place = (partition, queue, short(key), long(key))
            values.append((*place, kept, lane, priority, now + ready_in, attempt, most, fence, None, None, reason))
        await self._many(connection, "put_work", values)
        await connection.execute(self._sql["insert_partitions"], sorted({row.partition for row in rows}))

    # ------------------------------------------------------------------------------------------------------ blobs

    async def _put_blobs(self, connection: Connection, rows: Sequence[BlobRow]) -> None:
        now = await self._now(connection)
        values = [(*row[:3], None if row.grace is None else now + row.grace) for row in rows]
        await self._many(connection, "put_blobs", values)
        await connection.execute(self._sql["insert_partitions"], sorted({row.partition for row in rows}))

    async def _put_chunks(self, connection: Connection, rows: Sequence[ChunkRow]) -> None:
        values = [(*row[:3], hashlib.sha256(row.data).digest(), row.data) for row in rows]
        await self._many(connection, "put_chunks", values)

    async def _put_holdings(self, connection: Connection, rows: Sequence[HoldingRow]) -> None:
        values = [(row.partition, row.digest, short(row.holder), long(row.holder)) for row in rows]
        await self._many(connection, "put_holdings", values)


def _named(places: Iterable[Key]) -> list[Key]:
    return [(partition, family, short(name)) for partition, family, name in places]
