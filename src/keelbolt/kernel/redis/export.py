"""Reads a whole store in key order. Each row is consistent, and every checksum is verified.

SCAN returns keys in no order, and some of them twice during a rehash. So their names are collected once in a temporary
SQLite database, which sorts them and removes duplicates. It spills to disk when there are many, so the memory of a copy
is bounded for any store size.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

from keelbolt.errors import StorageCorrupt
from keelbolt.kernel.blobs import CHUNK_BYTES
from keelbolt.kernel.declarations import dump_fields
from keelbolt.kernel.redis.operations import checksum, entry_checksum, unpack_fields, unpacked
from keelbolt.kernel.redis.registry import RedisJournal
from keelbolt.kernel.redis.servers import PARTITIONS, RedisServers
from keelbolt.kernel.transfer.ports import PAGE_BYTES, PAGE_ROWS, Cursor, RowPage, Source
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
    item_row,
)

TOGETHER = 16  # concurrent calls
CALL_NAMES = 200
CALL_BYTES = 512 * 1024
CHUNKS = 4  # per call
_DIGEST_BYTES = 32

Found = tuple[Row, Cursor]


class StoreSource(Source):
    """The store's current data. A row that changes meanwhile is read before or after its change, never in between."""

    def __init__(self, store: RedisServers) -> None:
        self._store = store
        self._names: Names | None = None
        self._rows: dict[Table, Callable[[Cursor | None], AsyncIterator[list[Found]]]] = {
            "collection": self._collections,
            "partition": self._partitions,
            "record": self._records,
            "stream": self._streams,
            "entry": self._entries,
            "work": self._work,
            "blob": self._blobs,
            "chunk": self._chunks,
            "holding": self._holdings,
        }

    def close(self) -> None:
        if self._names is not None:
            self._names.close()

    async def _known(self) -> Names:
        """Return the names of all keys; collects them on first use."""
        if self._names is None:
            names = Names()
            try:
                await names.gather(self._store)
                if not self._store.single:
                    await self._register(names)
            except BaseException:
                names.close()
                raise
            self._names = names
        return self._names

    async def _register(self, names: Names) -> None:
        """Register unregistered partitions of a cluster: a writer can die before it registers a new partition."""
        listed = {name async for name in self._store.every_partition()}
        for name in names.partitions():
            if name not in listed:
                await self._store.write("load_partition", name)

    # -------------------------------------------------------------------------------------------------- the source

    async def totals(self) -> dict[Table, int]:
        names = await self._known()
        entries = chunks = holdings = 0
        async for page in names.pages("stream"):
            for row in await self._find("stream", page):
                assert isinstance(row, StreamRow)
                entries += row.head - row.floor
        async for page in names.pages("blob"):
            for group in _groups(page):
                for found in await self._read("export_blob", group):
                    if found:
                        holdings += found[2]
                        chunks += int(found[3])
        return {
            "collection": await self._store.read_registry(b"HLEN", b"catalog"),
            "partition": await self._store.read_registry(b"ZCARD", b"partitions"),
            "record": names.count("record"),
            "stream": names.count("stream"),
            "entry": entries,
            "work": names.count("work"),
            "blob": names.count("blob"),
            "chunk": chunks,
            "holding": holdings,
        }

    async def last_fence(self) -> int:
        return await RedisJournal(self._store).last_fence()

    async def pages(self, table: Table, after: Cursor | None = None) -> AsyncIterator[RowPage]:
        rows: list[Row] = []
        size = 0
        cursor: Cursor = []
        async for found in self._rows[table](after):
            for row, cursor in found:
                rows.append(row)
                size += _size(row)
                if len(rows) >= PAGE_ROWS or size >= PAGE_BYTES:
                    yield RowPage(rows, cursor)
                    rows, size = [], 0
        if rows:
            yield RowPage(rows, cursor)

    # ------------------------------------------------------------------------------------ collections and partitions

    async def _collections(self, after: Cursor | None) -> AsyncIterator[list[Found]]:
        found = await self._store.read_registry(b"HGETALL", b"catalog")
        rows: list[Found] = []
        for name, stored in sorted(zip(found[::2], found[1::2], strict=True)):
            if after is None or name.decode() > str(after[0]):
                declaration = stored.partition(b"|")[2].decode()
                rows.append((CollectionRow(name.decode(), declaration), [name.decode()]))
        yield rows

    async def _partitions(self, after: Cursor | None) -> AsyncIterator[list[Found]]:
        last = str(after[0]).encode() if after else b""
        while names := await self._store.partitions(last, PARTITIONS):
            yield [(PartitionRow(name.decode()), [name.decode()]) for name in names]
            last = names[-1]

    # --------------------------------------------------------------------------------------------- rows read by name

    async def _records(self, after: Cursor | None) -> AsyncIterator[list[Found]]:
        async for found in self._named("record", after):
            yield found

    async def _streams(self, after: Cursor | None) -> AsyncIterator[list[Found]]:
        async for found in self._named("stream", after):
            yield found

    async def _work(self, after: Cursor | None) -> AsyncIterator[list[Found]]:
        async for found in self._named("work", after):
            yield found

    async def _blobs(self, after: Cursor | None) -> AsyncIterator[list[Found]]:
        async for found in self._named("blob", after):
            yield found

    async def _named(self, kind: Kind, after: Cursor | None) -> AsyncIterator[list[Found]]:
        async for page in (await self._known()).pages(kind, _name(after)):
            async for rows in self._batches(kind, page):
                yield [(row, list(_place(row))) for row in rows]

    async def _find(self, table: Table, places: Iterable[Name]) -> list[Row]:
        return [row async for rows in self._batches(table, places) for row in rows]

    async def _batches(self, table: Table, names: Iterable[Name]) -> AsyncIterator[list[Row]]:
        """Return the existing rows in the order of the names."""
        make = _MAKE[table]
        groups = _groups(names)
        for start in range(0, len(groups), TOGETHER):
            some = groups[start : start + TOGETHER]
            answers = await asyncio.gather(*(self._ask(f"export_{table}", group) for group in some))
            for group, first in zip(some, answers, strict=True):
                left, answer = group, first
                while True:
                    now, found = answer
                    yield [make(name, row, now) for name, row in zip(left, found, strict=False) if row]
                    left = left[len(found) :]
                    if not left:
                        break
                    answer = await self._ask(f"export_{table}", left)  # the reply was cut at its size limit

    async def _read(self, function: str, group: Sequence[Name]) -> list[Any]:
        return (await self._ask(function, group))[1]

    async def _ask(self, function: str, group: Sequence[Name]) -> tuple[int, list[Any]]:
        """Return the server's time and the rows of the first names of the group, all of one partition."""
        partition = group[0][0]
        words: list[bytes] = [b"%d" % CALL_BYTES] if function == "export_record" else []
        for _, family, name in group:
            words += (name.encode(),) if function == "export_blob" else (family.encode(), name.encode())
        answer: list[Any] = await self._store.read(function, partition, *words)
        return (0, answer) if function == "export_stream" else (answer[0], answer[1:])

    # ----------------------------------------------------------------------------------- rows of streams and blobs

    async def _entries(self, after: Cursor | None) -> AsyncIterator[list[Found]]:
        async def more(name: Name, after: int) -> list[EntryRow]:
            return await self._log(name, after)

        start = int(after[3]) if after else 0
        async for rows in self._parts("stream", after, start, more, lambda row: row.seq):
            yield [(row, [*row[:3], row.seq]) for row in rows]

    async def _chunks(self, after: Cursor | None) -> AsyncIterator[list[Found]]:
        async def more(name: Name, after: int) -> list[ChunkRow]:
            return await self._blob_chunks(name, after)

        start = int(after[3]) if after else 0
        async for rows in self._parts("blob", after, start, more, lambda row: row.number + 1):
            yield [(row, [row.partition, "", row.digest, row.number + 1]) for row in rows]

    async def _parts(
        self,
        kind: Kind,
        after: Cursor | None,
        start: int,
        more: Callable[[Name, int], Awaitable[list[Any]]],
        next_: Callable[[Any], int],
    ) -> AsyncIterator[list[Any]]:
        """Return the parts of each stream or blob after the cursor; those of its stream or blob after ``start``."""
        if after is not None:
            while rows := await more(_name(after), start):
                yield rows
                start = next_(rows[-1])
        async for page in (await self._known()).pages(kind, _name(after)):
            for place in range(0, len(page), TOGETHER):
                some = page[place : place + TOGETHER]
                for name, first in zip(some, await asyncio.gather(*(more(name, 0) for name in some)), strict=True):
                    rows = first
                    while rows:
                        yield rows
                        rows = await more(name, next_(rows[-1]))

    async def _log(self, name: Name, after: int) -> list[EntryRow]:
        partition, log, stream = name
        words = (f"{log}/{stream}".encode(), b"%d" % after, b"%d" % PAGE_ROWS, b"%d" % CALL_BYTES)
        return list(_entry_rows(name, await self._store.read("export_entry", partition, *words)))

    async def _blob_chunks(self, name: Name, number: int) -> list[ChunkRow]:
        partition, _, digest = name
        words = (digest.encode(), b"%d" % number, b"%d" % CHUNKS)
        found = await self._store.read("export_chunk", partition, *words)
        return [_chunk(partition, digest, number + at, data) for at, data in enumerate(found)]

    async def _holdings(self, after: Cursor | None) -> AsyncIterator[list[Found]]:
        def found(row: HoldingRow) -> Found:
            return row, [row.partition, "", row.digest, row.holder]

        if after is not None:
            rows = await self._holders(str(after[0]), str(after[2]))
            yield [found(row) for row in rows if row.holder > str(after[3])]
        async for page in (await self._known()).pages("blob", _name(after)):
            for place in range(0, len(page), TOGETHER):
                some = page[place : place + TOGETHER]
                for held in await asyncio.gather(*(self._holders(name[0], name[2]) for name in some)):
                    yield [found(row) for row in held]

    async def _holders(self, partition: str, digest: str) -> Sequence[HoldingRow]:
        found = await self._store.command(partition, b"SMEMBERS", b"o/" + digest.encode())
        return [HoldingRow(partition, digest, holder) for holder in sorted(holder.decode() for holder in found)]


def _name(cursor: Cursor | None) -> Name:
    return (str(cursor[0]), str(cursor[1]), str(cursor[2])) if cursor else ("", "", "")


def _place(row: Row) -> Name:
    return (row.partition, "", row.digest) if isinstance(row, BlobRow) else row[:3]  # type: ignore[return-value]


def _groups(names: Iterable[Name]) -> list[list[Name]]:
    """Split names into groups of one partition and at most CALL_NAMES each."""
    groups = []
    for _, of_partition in groupby(names, key=lambda name: name[0]):
        some = list(of_partition)
        groups += [some[start : start + CALL_NAMES] for start in range(0, len(some), CALL_NAMES)]
    return groups


def _size(row: Row) -> int:
    return sum(len(value) for value in row if isinstance(value, bytes | str))


# ------------------------------------------------------------------------------------------------- rows from replies


def _left(until: bytes | None, now: int) -> int | None:
    return int(until) - now if until else None


def _record(name: Name, row: Sequence[Any], now: int) -> RecordRow:
    version, fields, body, crc, expires_at = row
    if checksum(body) != crc:
        raise StorageCorrupt.of(f"a record of {name[1]!r}")
    return RecordRow(*name, int(version), dump_fields(unpack_fields(fields)), _left(expires_at, now), body)


def _stream(name: Name, row: Sequence[Any], _now: int) -> StreamRow:
    return StreamRow(*name, int(row[0]), int(row[1]))


def _item(name: Name, row: Sequence[Any], now: int) -> ItemRow:
    state, lane, priority, ready_at, attempt, most, fence, _, again_at, reason = row
    return item_row(
        name,
        state.decode(),
        lane.decode(),
        int(priority),
        int(ready_at) - now,
        int(attempt),
        int(most),
        int(fence),
        _left(again_at, now),
        reason[1:].decode() if reason else None,
    )


def _blob(name: Name, row: Sequence[Any], now: int) -> BlobRow:
    size, expires_at, holders, _ = row
    return BlobRow(name[0], name[2], int(size), None if holders else _left(expires_at or b"0", now))


_MAKE: dict[Table, Callable[[Name, Sequence[Any], int], Row]] = {
    "record": _record,
    "stream": _stream,
    "work": _item,
    "blob": _blob,
}


def _entry_rows(name: Name, page: bytes) -> Iterable[EntryRow]:
    for seq, at, kind, data, dedupe, crc in unpacked(page):
        if entry_checksum(kind, data) != crc:
            raise StorageCorrupt.of(f"entry {seq} of a stream of {name[1]!r}")
        yield EntryRow(*name, seq, at, kind, data, dedupe[1:].decode() if dedupe else None)


def _chunk(partition: str, digest: str, number: int, data: bytes | None) -> ChunkRow:
    if data is None or hashlib.sha256(data[_DIGEST_BYTES:]).digest() != data[:_DIGEST_BYTES]:
        raise StorageCorrupt.of("a blob")
    assert len(data) <= CHUNK_BYTES + _DIGEST_BYTES
    return ChunkRow(partition, digest, number, data[_DIGEST_BYTES:])


# ---------------------------------------------------------------------------------------------------------------- names


Kind = Literal["record", "stream", "work", "blob"]
Name = tuple[str, str, str]  # partition, family, name

GATHERED = 2000
LISTED = 2000
CACHE_KIB = 65536

_KINDS: dict[bytes, Kind] = {b"r": "record", b"s": "stream", b"w": "work", b"b": "blob"}


class Names:
    """Contains all names that existed throughout the collection, and some that existed for a part of it."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._file.execute(
            "CREATE TABLE name (kind TEXT, partition TEXT, family TEXT, name TEXT, "
            "PRIMARY KEY (kind, partition, family, name)) WITHOUT ROWID"
        )

    def close(self) -> None:
        self._file.close()

    async def gather(self, store: RedisServers) -> None:
        page: list[tuple[str, str, str, str]] = []
        async for key in store.keys(store.layout.pattern):
            place = store.layout.parse(key)
            kind = _KINDS.get(place[1].partition(b"/")[0]) if place is not None else None
            if place is None or kind is None:
                continue
            rest = place[1].partition(b"/")[2].decode()
            family, _, name = ("", "", rest) if kind == "blob" else rest.partition("/")
            page.append((kind, place[0], family, name))
            if len(page) >= GATHERED:
                self._add(page)
                page = []
        self._add(page)

    def _add(self, page: list[tuple[str, str, str, str]]) -> None:
        self._file.executemany("INSERT OR IGNORE INTO name VALUES (?, ?, ?, ?)", page)

    def count(self, kind: Kind) -> int:
        return int(self._file.execute("SELECT count(*) FROM name WHERE kind = ?", (kind,)).fetchone()[0])

    def partitions(self) -> Iterator[str]:
        for row in self._file.execute("SELECT DISTINCT partition FROM name"):
            yield row[0]

    async def pages(self, kind: Kind, after: Name = ("", "", "")) -> AsyncIterator[list[Name]]:
        """Return all names after this one, in pages."""
        while True:
            page: list[Name] = self._file.execute(
                "SELECT partition, family, name FROM name WHERE kind = ? AND (partition, family, name) > (?, ?, ?) "
                "ORDER BY partition, family, name LIMIT ?",
                (kind, *after, LISTED),
            ).fetchall()
            if not page:
                return
            yield page
            after = page[-1]
