"""Reads a whole file as of one moment, in pages, and verifies every checksum."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from keelbolt.errors import StorageCorrupt
from keelbolt.kernel.migrations import queries_of
from keelbolt.kernel.sqlite.connection import SqliteConnection, translate
from keelbolt.kernel.sqlite.rows import (
    UNREADABLE,
    body_is_sound,
    entry_is_sound,
    head_crc,
    work_is_sound,
)
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

TRANSFER = queries_of("keelbolt.kernel.sqlite", "transfer.sql")

T = TypeVar("T")

# A row of a page, its size in bytes, and the cursor after it.
Read = tuple[Row, int, Cursor]

_START: dict[Table, Cursor] = {
    "collection": [""],
    "partition": [""],
    "record": [0],
    "stream": [0],
    "entry": [0, 0],
    "work": ["", "", ""],
    "blob": [0],
    "chunk": [0, -1],
    "holding": ["", "", ""],
}


class FileSource(Source):
    """Reads with its own connection in its own thread. ``now`` is the engine's time of the snapshot."""

    def __init__(self, connection: SqliteConnection, now: int, pool: ThreadPoolExecutor) -> None:
        self._connection = connection
        self._now = now
        self._pool = pool

    async def run(self, read: Callable[[SqliteConnection], T]) -> T:
        def call() -> T:
            try:
                return read(self._connection)
            except sqlite3.Error as error:
                raise translate(error) from error
            except UNREADABLE as error:
                raise StorageCorrupt.of("something stored") from error

        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def totals(self) -> dict[Table, int]:
        row = await self.run(lambda connection: connection.execute(TRANSFER["totals"]).fetchone())
        return dict(zip(TABLES, row, strict=True))

    async def last_fence(self) -> int:
        row = await self.run(lambda connection: connection.execute(TRANSFER["last_fence"]).fetchone())
        return int(row[0])

    async def pages(self, table: Table, after: Cursor | None = None) -> AsyncIterator[RowPage]:
        place = after if after is not None else _START[table]
        read = _READ[table]
        while True:
            start = place
            page = await self.run(lambda c, s=start: self._page(c, f"pages_{table}", s, read))  # type: ignore[misc]
            if not page.rows:
                return
            yield page
            place = page.cursor

    def _page(
        self, connection: SqliteConnection, query: str, after: Cursor, read: Callable[[Sequence[Any], int], Read]
    ) -> RowPage:
        rows: list[Row] = []
        size = 0
        cursor: Cursor = after
        found: Iterable[Any] = connection.execute(TRANSFER[query], (*after, PAGE_ROWS))
        for values in found:
            row, length, cursor = read(values, self._now)
            rows.append(row)
            size += length
            if size >= PAGE_BYTES:
                break
        return RowPage(rows, cursor)


def _left(until: int | None, now: int) -> int | None:
    return None if until is None else until - now


def _collection(values: Sequence[Any], _now: int) -> Read:
    return CollectionRow(*values), len(values[1]), [values[0]]


def _partition(values: Sequence[Any], _now: int) -> Read:
    return PartitionRow(values[0]), 0, [values[0]]


def _record(values: Sequence[Any], now: int) -> Read:
    number, partition, collection, key, version, fields, expires_at, head, crc, body = values
    if not body_is_sound(body, crc) or head_crc(partition, collection, key, version, fields, expires_at) != head:
        raise StorageCorrupt.of(f"a record of {collection!r}")
    expires_in = None if expires_at is None else expires_at - now
    return RecordRow(partition, collection, key, version, fields, expires_in, body), len(body) + len(key), [number]


def _stream(values: Sequence[Any], _now: int) -> Read:
    return StreamRow(*values[1:]), len(values[3]), [values[0]]


def _entry(values: Sequence[Any], _now: int) -> Read:
    number, seq, partition, log, stream, at, kind, data, dedupe, crc = values
    if not entry_is_sound(number, seq, at, kind, data, crc):
        raise StorageCorrupt.of(f"an entry of the log {log!r}")
    return EntryRow(partition, log, stream, seq, at, kind, data, dedupe), len(data), [number, seq]


def _work(values: Sequence[Any], now: int) -> Read:
    if not work_is_sound(values):
        raise StorageCorrupt.of(f"an item of the queue {values[1]!r}")
    place = (values[0], values[1], values[2])
    state, lane, priority, ready_at, attempt, most, fence, _, again_at, reason, _ = values[3:]
    row = item_row(place, state, lane, priority, ready_at - now, attempt, most, fence, _left(again_at, now), reason)
    return row, len(values[2]), [*place]


def _blob(values: Sequence[Any], now: int) -> Read:
    number, partition, digest, size, expires_at = values
    return BlobRow(partition, digest, size, _left(expires_at, now)), 0, [number]


def _chunk(values: Sequence[Any], _now: int) -> Read:
    blob, number, partition, digest, sha256, data = values
    if not isinstance(data, bytes) or hashlib.sha256(data).digest() != sha256:
        raise StorageCorrupt.of("a blob")
    return ChunkRow(partition, digest, number, data), len(data), [blob, number]


def _holding(values: Sequence[Any], _now: int) -> Read:
    return HoldingRow(*values), len(values[2]), [*values]


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
