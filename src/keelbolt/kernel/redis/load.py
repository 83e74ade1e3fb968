"""Writes rows of a copy, several partitions at a time. Writing a row twice has the same effect as once."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from keelbolt.kernel.blobs import CHUNK_BYTES
from keelbolt.kernel.declared import load_fields
from keelbolt.kernel.redis.catalog import RedisCatalog
from keelbolt.kernel.redis.operations import checksum, entry_checksum, key_hash
from keelbolt.kernel.redis.servers import RedisServers
from keelbolt.kernel.redis.tokens import pack_fields
from keelbolt.kernel.transfer.rows import (
    BlobRow,
    ChunkRow,
    EntryRow,
    HoldingRow,
    ItemRow,
    PartitionRow,
    RecordRow,
    StreamRow,
    Table,
)

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
