"""What was touched while a store was followed: left out when the rest is compared, and compared at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from keelbolt.storage.transfer.digests import Digests
from keelbolt.storage.transfer.ports import LiveSource, Place
from keelbolt.storage.transfer.rows import (
    BlobRow,
    ChunkRow,
    CollectionRow,
    EntryRow,
    HoldingRow,
    ItemRow,
    Kind,
    PartitionRow,
    RecordRow,
    Row,
    StreamRow,
    Touched,
)

SOME = 500


@dataclass(slots=True)
class Places:
    """Records, streams, work items and blobs, by their names."""

    kinds: dict[Kind, set[Place]] = field(
        default_factory=lambda: {"record": set(), "stream": set(), "work": set(), "blob": set()}
    )

    def add(self, touched: Iterable[Touched]) -> None:
        for each in touched:
            self.kinds[each.kind].add((each.partition, each.family, each.name))

    def __len__(self) -> int:
        return sum(map(len, self.kinds.values()))

    def without(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows that belong to none of these places. What a whole store has in common belongs to all."""
        return [row for row in rows if not self._has(row)]

    def _has(self, row: Row) -> bool:
        match row:
            case RecordRow():
                return row[:3] in self.kinds["record"]
            case EntryRow() | StreamRow():
                return row[:3] in self.kinds["stream"]
            case ItemRow():
                return row[:3] in self.kinds["work"]
            case BlobRow() | ChunkRow() | HoldingRow():
                return (row.partition, "", row.digest) in self.kinds["blob"]
            case CollectionRow() | PartitionRow():
                return True

    async def digests(self, source: LiveSource) -> Digests:
        """What a store has at these places, and its collections and partitions."""
        digests = Digests()
        async for page in source.pages("collection"):
            digests.add(page.rows)
        async for page in source.pages("partition"):
            digests.add(page.rows)
        async for rows in self.rows(source):
            digests.add(rows)
        return digests

    async def rows(self, source: LiveSource) -> AsyncIterator[Sequence[Row]]:
        """What a store has at these places."""
        for kind, places in self.kinds.items():
            left = iter(places)
            while some := tuple(islice(left, SOME)):
                found = await source.find(kind, some)
                yield found
                for row in found:
                    async for parts in _parts(source, row):
                        yield parts


async def _parts(source: LiveSource, row: Row) -> AsyncIterator[Sequence[Row]]:
    if isinstance(row, StreamRow):
        async for entries in source.entries(row, row.floor):
            yield entries
    elif isinstance(row, BlobRow):
        async for chunks in source.chunks(row.partition, row.digest):
            yield chunks
        yield await source.holders(row.partition, row.digest)
