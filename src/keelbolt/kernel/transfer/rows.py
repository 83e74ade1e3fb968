"""The rows in which a store is copied to another engine or into a backup, and their digests.

Rows contain no engine ids and no engine times: an expiry is stored as the remaining time in microseconds. Everything
else is as stored, so that versions, seqs and fences stay valid for clients.

Two stores are compared by one digest per family: the sum of the hashes of its rows, independent of their order.
Remaining times are excluded, because each side measures them by its own clock. Whether a row expires is included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

Table = Literal["collection", "partition", "record", "stream", "entry", "work", "blob", "chunk", "holding"]

# In writing order: a record needs its collection, an entry its stream, a chunk its blob.
TABLES: tuple[Table, ...] = (
    "collection",
    "partition",
    "record",
    "stream",
    "entry",
    "work",
    "blob",
    "chunk",
    "holding",
)


class CollectionRow(NamedTuple):
    name: str
    declaration: str


class PartitionRow(NamedTuple):
    name: str


class RecordRow(NamedTuple):
    """``fields`` is the JSON that engines store; ``expires_in`` is negative for an expired record that is not swept."""

    partition: str
    collection: str
    key: str
    version: int
    fields: str
    expires_in: int | None
    body: bytes


class StreamRow(NamedTuple):
    partition: str
    log: str
    stream: str
    head: int
    floor: int


class EntryRow(NamedTuple):
    partition: str
    log: str
    stream: str
    seq: int
    at: int
    kind: str
    data: bytes
    dedupe: str | None


class ItemRow(NamedTuple):
    """A waiting or dead work item; a held one is copied as waiting, without its current attempt."""

    partition: str
    queue: str
    key: str
    state: Literal["waiting", "dead"]
    lane: str
    priority: int
    ready_in: int
    attempt: int
    max_attempts: int
    fence: int
    reason: str | None


class BlobRow(NamedTuple):
    """``grace`` is None while the blob has holders."""

    partition: str
    digest: str
    size: int
    grace: int | None


class ChunkRow(NamedTuple):
    partition: str
    digest: str
    number: int
    data: bytes


class HoldingRow(NamedTuple):
    partition: str
    digest: str
    holder: str


Row = CollectionRow | PartitionRow | RecordRow | StreamRow | EntryRow | ItemRow | BlobRow | ChunkRow | HoldingRow

ROW_TYPES: dict[Table, type[Row]] = {
    "collection": CollectionRow,
    "partition": PartitionRow,
    "record": RecordRow,
    "stream": StreamRow,
    "entry": EntryRow,
    "work": ItemRow,
    "blob": BlobRow,
    "chunk": ChunkRow,
    "holding": HoldingRow,
}


def item_row(
    place: tuple[str, str, str],
    state: str,
    lane: str,
    priority: int,
    ready_in: int,
    attempt: int,
    max_attempts: int,
    fence: int,
    again_in: int | None,
    reason: str | None,
) -> ItemRow:
    """Convert a stored item. A held item is copied as if it had been released, because its holder is not copied."""
    if state == "held":
        ready_in = 0 if again_in is None else min(0, again_in)
        attempt -= 1
    kept: Literal["waiting", "dead"] = "dead" if state == "dead" else "waiting"
    return ItemRow(*place, kept, lane, priority, ready_in, attempt, max_attempts, fence, reason)


# -------------------------------------------------------------------------------------------------------------- digests


_MASK = (1 << 128) - 1


@dataclass(slots=True)
class RowDigests:
    """The number of rows of each family, and the sum of their hashes."""

    families: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, rows: Iterable[Row]) -> None:
        sums: dict[str, list[int]] = {}
        for row in rows:
            family, value = hash_of(row)
            total = sums.setdefault(family, [0, 0])
            total[0] += 1
            total[1] += value
        for family, (count, total_hash) in sums.items():
            known, known_hash = self.families.get(family, (0, 0))
            self.families[family] = (known + count, (known_hash + total_hash) & _MASK)

    def differing(self, other: RowDigests) -> list[str]:
        """Return the families that differ."""
        names = sorted(self.families.keys() | other.families.keys())
        return [name for name in names if self.families.get(name, (0, 0)) != other.families.get(name, (0, 0))]

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each family."""
        return {name: count for name, (count, _) in self.families.items()}

    def to_json(self) -> dict[str, list[Any]]:
        return {name: [count, f"{total:032x}"] for name, (count, total) in sorted(self.families.items())}

    @classmethod
    def of_json(cls, stored: Mapping[str, list[Any]]) -> RowDigests:
        return cls({name: (int(count), int(total, 16)) for name, (count, total) in stored.items()})


def hash_of(row: Row) -> tuple[str, int]:
    """Return the family of a row and the hash of its content."""
    family, head, data = _parts(row)
    hasher = blake2b(head.encode("utf-8", "surrogatepass"), digest_size=16)
    if data:
        hasher.update(data)
    return family, int.from_bytes(hasher.digest())


def _parts(row: Row) -> tuple[str, str, bytes]:
    """Return the family of a row, its content as text, and its bytes. NUL separates values; names can't contain it."""
    match row:
        case EntryRow(partition, log, stream, seq, at, kind, data, dedupe):
            return f"log {log}", f"e{partition}\0{stream}\0{seq}\0{at}\0{kind}\0{dedupe or ''}\0", data
        case RecordRow(partition, collection, key, version, fields, expires_in, body):
            ends = "" if expires_in is None else "ends"
            return f"records of {collection}", f"{partition}\0{key}\0{version}\0{fields}\0{ends}\0", body
        case StreamRow(partition, log, stream, head, floor):
            return f"streams of log {log}", f"s{partition}\0{stream}\0{head}\0{floor}", b""
        case ItemRow(partition, queue, key, state, lane, priority, _, attempt, most, fence, reason):
            text = f"{partition}\0{key}\0{state}\0{lane}\0{priority}\0{attempt}\0{most}\0{fence}\0{reason is None}\0"
            return f"work in {queue}", text + (reason or ""), b""
        case ChunkRow(partition, digest, number, data):
            return "bytes of blobs", f"{partition}\0{digest}\0{number}\0", data
        case BlobRow(partition, digest, size, grace):
            return "blobs", f"{partition}\0{digest}\0{size}\0{grace is None}", b""
        case HoldingRow(partition, digest, holder):
            return "holders of blobs", f"{partition}\0{digest}\0{holder}", b""
        case CollectionRow(name, declaration):
            return "collections", f"{name}\0{declaration}", b""
        case PartitionRow(name):
            return "partitions", name, b""
