"""Reads a whole schema from one snapshot, in pages in key order."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from keelbolt.errors import StorageCorrupt
from keelbolt.kernel.migrations import queries_of
from keelbolt.kernel.postgres.connection import ERRORS, Connection, translate
from keelbolt.kernel.transfer.ports import PAGE_BYTES, PAGE_ROWS, Cursor, RowPage, Source
from keelbolt.kernel.transfer.rows import (
    TABLES,
    BlobRow,
    ChunkRow,
    CollectionRow,
    EntryRow,
    HoldingRow,
    PartitionRow,
    RecordRow,
    Row,
    StreamRow,
    Table,
    item_row,
)

# Forces index order even if the planner has no statistics of a new table.
SETTINGS = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_seqscan = off; "
    "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; "
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
)

Read = tuple[Row, Cursor]

_START: dict[Table, Cursor] = {
    "collection": [""],
    "partition": [""],
    "record": ["", "", ""],
    "stream": [0],
    "entry": [0, 0],
    "work": ["", "", ""],
    "blob": [0],
    "chunk": [0, -1],
    "holding": ["", "", ""],
}
_WITH_BYTES = frozenset(("record", "entry", "chunk"))


def transfer_statements(schema: str) -> dict[str, str]:
    queries = queries_of("keelbolt.kernel.postgres", "transfer.sql")
    return {name: sql.replace("{schema}", schema) for name, sql in queries.items()}


class SchemaSource(Source):
    """Reads on its own connection, inside a transaction. ``now`` is the database's time of the snapshot."""

    def __init__(self, connection: Connection, sql: dict[str, str], now: int) -> None:
        self._connection = connection
        self._sql = sql
        self._now = now
        self._turn = asyncio.Lock()

    async def _fetch(self, query: str, *values: Any) -> list[Any]:
        try:
            async with self._turn:
                rows: list[Any] = await self._connection.fetch(self._sql[query], *values)
                return rows
        except ERRORS as error:
            raise translate(error) from error

    async def totals(self) -> dict[Table, int]:
        (row,) = await self._fetch("totals")
        return dict(zip(TABLES, row, strict=True))

    async def last_fence(self) -> int:
        return int((await self._fetch("last_fence"))[0][0])

    async def pages(self, table: Table, after: Cursor | None = None) -> AsyncIterator[RowPage]:
        place = after if after is not None else _START[table]
        limits = (PAGE_ROWS, PAGE_BYTES) if table in _WITH_BYTES else (PAGE_ROWS,)
        read = _READ[table]
        while rows := await self._fetch(f"pages_{table}", *place, *limits):
            found = [read(row, self._now) for row in rows]
            place = found[-1][1]
            yield RowPage([row for row, _ in found], place)


def _left(until: int | None, now: int) -> int | None:
    return None if until is None else until - now


def _collection(values: Sequence[Any], _now: int) -> Read:
    return CollectionRow(*values), [values[0]]


def _partition(values: Sequence[Any], _now: int) -> Read:
    return PartitionRow(values[0]), [values[0]]


def _record(values: Sequence[Any], now: int) -> Read:
    partition, collection, name, key, version, fields, expires_at, body = values
    row = RecordRow(partition, collection, key or name, version, fields, _left(expires_at, now), body)
    return row, [partition, collection, name]


def _stream(values: Sequence[Any], _now: int) -> Read:
    return StreamRow(*values[1:]), [values[0]]


def _entry(values: Sequence[Any], _now: int) -> Read:
    number, seq, partition, log, stream, at, kind, data, dedupe = values
    return EntryRow(partition, log, stream, seq, at, kind, data, dedupe), [number, seq]


def _work(values: Sequence[Any], now: int) -> Read:
    partition, queue, name, key, state, lane, priority, ready_at, attempt, most, fence, again_at, reason = values
    place = (partition, queue, key or name)
    row = item_row(place, state, lane, priority, ready_at - now, attempt, most, fence, _left(again_at, now), reason)
    return row, [partition, queue, name]


def _blob(values: Sequence[Any], now: int) -> Read:
    number, partition, digest, size, expires_at = values
    return BlobRow(partition, digest, size, _left(expires_at, now)), [number]


def _chunk(values: Sequence[Any], _now: int) -> Read:
    blob, number, partition, digest, sha256, data = values
    if hashlib.sha256(data).digest() != sha256:
        raise StorageCorrupt.of(f"chunk {number} of blob {digest}")
    return ChunkRow(partition, digest, number, data), [blob, number]


def _holding(values: Sequence[Any], _now: int) -> Read:
    partition, digest, holder, key = values
    return HoldingRow(partition, digest, key or holder), [partition, digest, holder]


_READ: dict[Table, Callable[[Sequence[Any], int], Read]] = {
    "collection": _collection,
    "partition": _partition,
    "record": _record,
    "stream": _stream,
    "entry": _entry,
    "work": _work,
    "blob": _blob,
    "chunk": _chunk,
    "holding": _holding,
}
