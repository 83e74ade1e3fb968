"""The rows in which a store is copied to another engine or into a backup.

They contain no engine ids and no engine times: an expiry is stored as the remaining time in microseconds. Everything
else is as stored, so that versions, seqs and fences stay valid for clients.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

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
