"""Access to a whole schema for copies: reads from one snapshot, writes page by page, and sets the store's mark."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlsplit

from keelbolt.errors import CopyOutdated
from keelbolt.kernel.declarations import Catalog, CheckedCollection, load_fields
from keelbolt.kernel.ledger import Key, stored_state
from keelbolt.kernel.postgres.committer import catalog_lock
from keelbolt.kernel.postgres.connection import (
    ERRORS,
    Connection,
    UniqueViolationError,
    close_quietly,
    long,
    short,
    translate,
)
from keelbolt.kernel.postgres.export import SETTINGS, SchemaSource, transfer_statements
from keelbolt.kernel.postgres.rows import Totals, entries_of
from keelbolt.kernel.postgres.schema import declare, load_catalog
from keelbolt.kernel.records import MAX_INDEXES
from keelbolt.kernel.transfer.ports import MARK, MarkState, Source, Transfer, WriteBlock, changed_mark
from keelbolt.kernel.transfer.rows import (
    BlobRow,
    ChunkRow,
    CollectionRow,
    EntryRow,
    HoldingRow,
    ItemRow,
    PartitionRow,
    RecordRow,
    Row,
    StreamRow,
    Table,
)

NOTE = "copy"

Writing = Callable[[], AbstractAsyncContextManager[Connection]]


class SchemaTransfer(Transfer):
    def __init__(
        self,
        *,
        connect: Callable[[], Awaitable[Connection]],
        writing: Writing,
        sql: dict[str, str],
        schema: str,
        url: str,
        learn: Callable[[], Awaitable[None]],
        declare_missing: Callable[[], Awaitable[None]],
    ) -> None:
        self._connect = connect
        self._writing = writing
        self._sql = sql | transfer_statements(schema)
        self._schema = schema
        self._url = url
        self._learn = learn
        self._declare_missing = declare_missing
        self._lock = catalog_lock(schema)
        self._loader = PostgresLoader(self._sql, schema, self._lock)

    def place(self) -> str:
        parts = urlsplit(self._url)
        hosts = parts.netloc.rpartition("@")[2].lower().split(",")
        named = ",".join(host if re.search(r":\d+$", host) else f"{host}:5432" for host in hosts)
        return f"postgresql://{named}{parts.path}?schema={self._schema}"

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Source]:
        connection = None
        try:
            try:
                connection = await self._connect()
                await connection.execute(SETTINGS)
                now = await connection.fetchval(self._sql["now"])
            except ERRORS as error:
                raise translate(error) from error
            yield SchemaSource(connection, self._sql, now)
        finally:
            await close_quietly(connection)

    async def _rows(self, query: str, *values: Any) -> list[Any]:
        async with self._writing() as connection:
            rows: list[Any] = await connection.fetch(self._sql[query], *values)
            return rows

    # ---------------------------------------------------------------------------------------------------- writing

    async def holds_data(self) -> bool:
        return bool((await self._rows("holds_data"))[0][0])

    async def put(self, table: Table, rows: Sequence[Row], note: str) -> None:
        try:
            async with self._writing() as connection:
                await self._loader.put(connection, table, rows)
                await connection.execute(self._sql["set_meta"], NOTE, note)
        except BaseException as error:
            self._loader.forget()
            if isinstance(error.__cause__, UniqueViolationError):
                raise CopyOutdated from error
            raise
        if table == "collection":
            await self._learn()

    async def raise_fence(self, fence: int) -> None:
        await self._rows("raise_ids", fence)

    async def wipe(self) -> None:
        async with self._writing() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", self._lock)
            for query in ("wipe", "wipe_meta", "new_catalog"):
                await connection.execute(self._sql[query])
        self._loader.forget()

    # --------------------------------------------------------------------------------------- the note and the mark

    async def note(self) -> str | None:
        note: str | None = (await self._rows("get_meta", NOTE))[0][1]
        return note

    async def set_note(self, note: str) -> None:
        await self._rows("set_meta", NOTE, note)

    async def mark(self) -> WriteBlock | None:
        now, text = (await self._rows("get_meta", MARK))[0]
        mark = WriteBlock.load(text)
        return mark if mark is not None and not mark.over(now) else None

    async def set_mark(
        self, state: MarkState | None, copy: str, *, seconds: float | None = None, if_held: bool = False
    ) -> None:
        async with self._writing() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", self._lock)
            await connection.execute(self._sql["settle_marks"])
            now, text = await connection.fetchrow(self._sql["get_meta"], MARK)
            mark = changed_mark(WriteBlock.load(text), state, copy, now=now, seconds=seconds, if_held=if_held)
            if mark is None:
                await connection.execute(self._sql["delete_meta"], [MARK])
            else:
                await connection.execute(self._sql["set_meta"], MARK, mark.dump())

    async def release(self) -> None:
        await self._learn()
        await self._declare_missing()
        await self._rows("delete_meta", [NOTE, MARK])


# ----------------------------------------------------------------------------------------------------------------- load


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
