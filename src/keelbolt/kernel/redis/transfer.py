"""Access to the whole store of a server or cluster, for copies.

**A server has no snapshots.** `reading` returns the current data, so a copy or a backup refuses writes while it reads.

**No transaction spans two slots.** Rows are written before the note that counts them, and rewriting a row has no
effect: a copy that was killed in between writes some rows twice. Several partitions are written at a time.

**Names** are listed by SCAN, once per reading, and sorted on the copier's disk (`keelbolt.kernel.redis.export`): so
each row is read once, in an order in which an interrupted copy can continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from keelbolt.kernel.blobs import CHUNK_BYTES
from keelbolt.kernel.declarations import CheckedCollection, Declarations, load_fields
from keelbolt.kernel.redis.export import StoreSource
from keelbolt.kernel.redis.operations import checksum, entry_checksum, key_hash, pack_fields
from keelbolt.kernel.redis.registry import RedisCatalog, RedisJournal
from keelbolt.kernel.redis.servers import RedisServers
from keelbolt.kernel.transfer.ports import MarkState, Source, Transfer, WriteBlock
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

NOTE = b"copy"
WIPED = 1000  # keys per page
_KEPT = (b"format", b"generation", b"mark", b"fence")  # kept in the registry and the journals by a wipe


class StoreTransfer(Transfer):
    snapshots = False

    def __init__(self, store: RedisServers, catalog: RedisCatalog, declared: Declarations) -> None:
        self._store = store
        self._catalog = catalog
        self._declared = declared
        self._journal = RedisJournal(store)
        self._loader = RedisLoader(store, catalog)

    def place(self) -> str:
        return f"{self._store.place}?namespace={self._store.layout.namespace}"

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Source]:
        source = StoreSource(self._store)
        try:
            yield source
        finally:
            source.close()

    # ---------------------------------------------------------------------------------------------------- writing

    async def holds_data(self) -> bool:
        if await self._store.read_registry(b"ZCARD", b"partitions"):
            return True
        async for key in self._store.keys(self._store.layout.pattern):
            place = self._store.layout.parse(key)
            if place is not None and not place[1].startswith(b"x/"):  # stored replies to calls are not data
                return True
        return False

    async def put(self, table: Table, rows: Sequence[Row], note: str) -> None:
        if table == "collection":
            for row in rows:
                assert isinstance(row, CollectionRow)
                await self._declare(CheckedCollection.load(row.name, row.declaration))
        else:
            await self._loader.put(table, rows)
        await self.set_note(note)

    async def _declare(self, shape: CheckedCollection) -> None:
        self._declared.shapes[shape.name] = shape
        await self._catalog.declare(shape)

    async def raise_fence(self, fence: int) -> None:
        await self._journal.raise_fence(fence)

    async def wipe(self) -> None:
        """Delete all data. Declarations keep counting versions: other processes may have cached an earlier one."""
        store = self._store
        await self._catalog.load()
        last = max((entry.version for entry in self._catalog.entries.values()), default=0)
        await store.keep(b"SET", store.layout.registry + b"generation", b"%d" % last)
        page: list[bytes] = []
        async for key in store.keys(store.layout.pattern):
            if store.layout.parse(key) is not None or key.rpartition(b"}:")[2] not in _KEPT:
                page.append(key)
            if len(page) >= WIPED:
                await self._unlink(page)
                page = []
        await self._unlink(page)
        self._catalog.wiped()
        store.forget_partitions()

    async def _unlink(self, keys: Sequence[bytes]) -> None:
        await asyncio.gather(*(self._store.keep(b"UNLINK", key) for key in keys))

    # --------------------------------------------------------------------------------------- the note and the mark

    async def note(self) -> str | None:
        note: bytes | None = await self._store.read_registry(b"GET", NOTE)
        return note.decode() if note is not None else None

    async def set_note(self, note: str) -> None:
        await self._store.keep(b"SET", self._store.layout.registry + NOTE, note.encode())

    async def mark(self) -> WriteBlock | None:
        return await self._journal.mark()

    async def set_mark(
        self, state: MarkState | None, copy: str, *, seconds: float | None = None, if_held: bool = False
    ) -> None:
        await self._journal.set_mark(state, copy, seconds=seconds, if_held=if_held)

    async def release(self) -> None:
        """End the copy. Declares collections of this process that the copy lacks."""
        for name, shape in self._declared.shapes.items():
            if not self._catalog.has(name):
                await self._catalog.declare(shape)
        await self._journal.release()


# ----------------------------------------------------------------------------------------------------------------- load


CALL_BYTES = 256 * 1024  # larger calls would block the server for other clients
CALL_ROWS = 200

Words = list[bytes]


class RedisLoader:
    def __init__(self, store: RedisServers, catalog: RedisCatalog) -> None:
        self._store = store
        self._catalog = catalog

    async def put(self, table: Table, rows: Sequence[Any]) -> None:
        """Write all rows. Rows of one partition are written in their order."""
        if table == "record":
            rows = [row for row in rows if self._catalog.has(row.collection)]
        calls = []
        for partition, some in _parted(rows):
            head = self._shapes(some) if table == "record" else []
            for words in _cut(map(_WORDS[table], some)):
                calls += [self._store.write(f"load_{table}", partition, *head, *words)]
        await asyncio.gather(*calls)

    def _shapes(self, rows: Sequence[RecordRow]) -> Words:
        names = {row.collection for row in rows}
        words = [b"%d" % len(names)]
        for name in names:
            words += (name.encode(), self._catalog.entries[name].text)
        return words


def _parted(rows: Sequence[Any]) -> Iterable[tuple[str, list[Any]]]:
    """Group rows by partition, the first column of every row."""
    parted: dict[str, list[Any]] = {}
    for row in rows:
        parted.setdefault(row[0], []).append(row)
    return parted.items()


def _cut(rows: Iterable[Words]) -> Iterable[Words]:
    """Join the words of several rows, up to the limits of one call."""
    words: Words = []
    size = count = 0
    for row in rows:
        words += row
        size += sum(map(len, row))
        count += 1
        if size >= CALL_BYTES or count >= CALL_ROWS:
            yield words
            words, size, count = [], 0, 0
    if count:
        yield words


# ------------------------------------------------------------------------------------------------------- rows to words


def _micros(left: int | None) -> bytes:
    return b"" if left is None else b"%d" % left


def _partition(_row: PartitionRow) -> Words:
    return []


def _record(row: RecordRow) -> Words:
    key = row.key.encode()
    return [
        row.collection.encode(),
        key,
        key_hash(key),
        b"%d" % row.version,
        pack_fields(load_fields(row.fields)),
        row.body,
        checksum(row.body),
        _micros(row.expires_in),
    ]


def _stream(row: StreamRow) -> Words:
    return [row.log.encode(), row.stream.encode(), b"%d" % row.head, b"%d" % row.floor]


def _entry(row: EntryRow) -> Words:
    return [
        row.log.encode(),
        row.stream.encode(),
        b"%d" % row.seq,
        b"%d" % row.at,
        row.kind.encode(),
        row.data,
        entry_checksum(row.kind, row.data),
        b"" if row.dedupe is None else b"=" + row.dedupe.encode(),
    ]


def _item(row: ItemRow) -> Words:
    return [
        row.queue.encode(),
        row.key.encode(),
        row.state.encode(),
        row.lane.encode(),
        b"%d" % row.priority,
        b"%d" % row.ready_in,
        b"%d" % row.attempt,
        b"%d" % row.max_attempts,
        b"%d" % row.fence,
        b"" if row.reason is None else b"=" + row.reason.encode(),
    ]


def _blob(row: BlobRow) -> Words:
    chunks = -(-row.size // CHUNK_BYTES)
    upload = secrets.randbits(63)  # used only if the blob has no upload yet
    return [row.digest.encode(), b"%d" % row.size, b"%d" % chunks, b"%016x" % upload, _micros(row.grace)]


def _chunk(row: ChunkRow) -> Words:
    return [row.digest.encode(), b"%d" % row.number, hashlib.sha256(row.data).digest() + row.data]


def _holding(row: HoldingRow) -> Words:
    return [row.digest.encode(), row.holder.encode()]


_WORDS: dict[Table, Callable[[Any], Words]] = {
    "partition": _partition,
    "record": _record,
    "stream": _stream,
    "entry": _entry,
    "work": _item,
    "blob": _blob,
    "chunk": _chunk,
    "holding": _holding,
}
