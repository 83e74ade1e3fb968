"""The data of the memory engine: rows, indexes, counters and queues. The copier reads and writes the rows.

Changes of indexes are collected and applied before the next read, or when `GATHERED` records have changed: a record
that is written several times in between is indexed once. (Measured: 12 us instead of 39 for the four indexes of an echo
task.)

A queue's heap entries may be outdated: code that pops one compares it with the work row and drops it if they differ.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

from keelbolt.kernel.blobs import Blob
from keelbolt.kernel.declarations import CheckedCollection, Declarations, load_fields
from keelbolt.kernel.ledger import Key, Ledger, RecordState, StreamState, WorkRow
from keelbolt.kernel.logs import Entry
from keelbolt.kernel.records import Fields
from keelbolt.kernel.transfer.ports import WriteBlock
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
)

GATHERED = 256  # changed records; a larger number would delay the commit that applies them
BLOCK = 512  # entries per sorted block


class Indexes:
    """Sorted index entries of each collection, and totals per (collection, counter number, group)."""

    def __init__(self) -> None:
        self._entries: dict[str, list[SortedEntries]] = {}  # by collection, then by index number
        self._places: dict[Key, tuple[Fields, list[bytes], list[bytes]]] = {}  # fields, entries and groups as indexed
        self._totals: Counter[tuple[str, int, bytes]] = Counter()
        self._changed: dict[Key, tuple[CheckedCollection, RecordState | None]] = {}

    def change(self, shape: CheckedCollection, key: Key, new: RecordState | None) -> None:
        """Index a record by its new fields; None: it was deleted."""
        if shape.indexes or shape.counters:
            self._changed[key] = shape, new
            if len(self._changed) >= GATHERED:
                self._apply()

    def _apply(self) -> None:
        changed, self._changed = self._changed, {}
        for key, (shape, new) in changed.items():
            self._move(shape, key, new)

    def _move(self, shape: CheckedCollection, key: Key, new: RecordState | None) -> None:
        partition, collection, name = key
        fields, before, groups_before = self._places.pop(key, _NOWHERE)
        after: Sequence[bytes] = ()
        groups_after: Sequence[bytes] = ()
        if new is not None:
            if before and fields == new.fields:
                self._places[key] = fields, before, groups_before
                return
            after, groups_after = shape.entries(partition, name, new.fields), shape.groups(partition, new.fields)
            self._places[key] = new.fields, after, groups_after
        indexes = self._entries.get(collection)
        if indexes is None:
            indexes = self._entries[collection] = [SortedEntries() for _ in shape.indexes]
        for number, entries in enumerate(indexes):
            gone = before[number] if before else None
            came = after[number] if after else None
            if gone == came:
                continue
            if gone is not None:
                entries.remove(gone)
            if came is not None:
                entries.add(came, key)
        if groups_before != groups_after:
            for number, group in enumerate(groups_before):
                self._totals[collection, number, group] -= 1
                if not self._totals[collection, number, group]:
                    del self._totals[collection, number, group]
            for number, group in enumerate(groups_after):
                self._totals[collection, number, group] += 1

    def forget(self, collection: str) -> None:
        """Remove the indexes of a collection before they are rebuilt."""
        self._apply()
        self._entries.pop(collection, None)
        self._places = {key: places for key, places in self._places.items() if key[1] != collection}
        for place in [place for place in self._totals if place[0] == collection]:
            del self._totals[place]

    def scan(
        self, collection: str, number: int, low: bytes, high: bytes, *, newest_first: bool
    ) -> Iterator[tuple[bytes, Key]]:
        """Yield the entries in low ≤ entry < high with their records, in order."""
        self._apply()
        if collection in self._entries:
            yield from self._entries[collection][number].scan(low, high, newest_first=newest_first)

    def total(self, collection: str, number: int, group: bytes) -> int:
        """Return the total of a counter for one group."""
        self._apply()
        return self._totals[collection, number, group]


class SortedEntries:
    """Sorted entries, each with its record. Blocks of limited length keep changes cheap when there are many entries."""

    def __init__(self) -> None:
        self._keys: dict[bytes, Key] = {}
        self._blocks: list[list[bytes]] = [[]]
        self._lasts: list[bytes] = []  # the last entry of each block except the last block

    def add(self, entry: bytes, key: Key) -> None:
        self._keys[entry] = key
        at = bisect_left(self._lasts, entry)
        block = self._blocks[at]
        if not block or entry > block[-1]:  # most entries are appended
            block.append(entry)
        else:
            insort(block, entry)
        if len(block) > BLOCK:
            half = len(block) // 2
            self._blocks[at : at + 1] = [block[:half], block[half:]]
            self._lasts.insert(at, block[half - 1])

    def remove(self, entry: bytes) -> None:
        del self._keys[entry]
        at = bisect_left(self._lasts, entry)
        block = self._blocks[at]
        del block[bisect_left(block, entry)]
        if not block and self._lasts:
            del self._blocks[at]
            del self._lasts[min(at, len(self._lasts) - 1)]

    def scan(self, low: bytes, high: bytes, *, newest_first: bool) -> Iterator[tuple[bytes, Key]]:
        first, last = bisect_left(self._lasts, low), bisect_right(self._lasts, high)
        numbers = range(first, min(last, len(self._blocks) - 1) + 1)
        for number in reversed(numbers) if newest_first else numbers:
            block = self._blocks[number]
            found = block[bisect_left(block, low) : bisect_left(block, high)]
            for entry in reversed(found) if newest_first else found:
                yield entry, self._keys[entry]


_NOWHERE: tuple[Fields, list[bytes], list[bytes]] = ({}, [], [])


@dataclass(slots=True)
class Upload:
    partition: str
    expires_at: int
    blob: Blob | None = None
    chunks: list[tuple[bytes, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class Content:
    declared: Declarations
    now: Callable[[], int]
    save: Callable[[int], None]  # saves the changes of the ledger
    ledger: Ledger = field(default_factory=Ledger)
    indexes: Indexes = field(default_factory=Indexes)
    entries: dict[int, list[Entry]] = field(default_factory=dict)
    uploads: dict[int, Upload] = field(default_factory=dict)
    blobs: dict[tuple[str, str], int] = field(default_factory=dict)
    holders: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    note: str | None = None
    mark: WriteBlock | None = None
    upload_numbers: count[int] = field(default_factory=lambda: count(1))

    # ------------------------------------------------------------------------------------------------------- mark

    def obey(self) -> None:
        """Raise the refusal of the mark, if there is one."""
        if self.mark is not None and (refusal := self.mark.refusal(self.now())) is not None:
            raise refusal

    # ------------------------------------------------------------------------------------------------------- rows

    def holds_data(self) -> bool:
        return bool(self.names or self.ledger.records or self.ledger.streams or self.ledger.work or self.blobs)

    def declare(self, shape: CheckedCollection) -> None:
        self.indexes.forget(shape.name)
        for key, state in self.ledger.records.items():
            if key[1] == shape.name and state is not None:
                self.indexes.change(shape, key, state)

    def put(self, rows: Sequence[Row]) -> None:
        now = self.now()
        for row in rows:
            self._put(row, now)
            if not isinstance(row, CollectionRow):
                self.names.add(row[0])
        self.save(now)

    def _put(self, row: Row, now: int) -> None:
        ledger = self.ledger
        match row:
            case CollectionRow(name, declaration):
                shape = CheckedCollection.load(name, declaration)
                self.declare(shape)
                self.declared.shapes[name] = shape
            case PartitionRow():
                pass
            case RecordRow(partition, collection, key, version, fields, expires_in, body):
                if collection not in self.declared.shapes:
                    return
                expires_at = None if expires_in is None else now + expires_in
                state = RecordState(version, load_fields(fields), expires_at, body)
                ledger.put_record((partition, collection, key), state)
            case StreamRow(partition, log, stream, head, floor):
                number = ledger.next_stream()
                ledger.streams[partition, log, stream] = StreamState(number, head, floor)
                self.entries[number] = []
            case EntryRow():
                self._put_entry(row)
            case ItemRow(partition, queue, key, state_, lane, priority, ready_in, attempt, most, fence, reason):
                item = WorkRow(state_, lane, priority, now + ready_in, attempt, most, fence, None, None, reason)
                ledger.put_work((partition, queue, key), item)
            case _:
                self._put_blob(row, now)

    def _put_entry(self, row: EntryRow) -> None:
        stream = self.ledger.streams.get((row.partition, row.log, row.stream))
        if stream is None:
            return
        self.entries[stream.id].append(Entry(row.seq, row.kind, row.data, row.at))
        if row.dedupe is not None:
            self.ledger.dedupes[stream.id, row.dedupe] = row.seq

    def _put_blob(self, row: BlobRow | ChunkRow | HoldingRow, now: int) -> None:
        place = (row.partition, row.digest)
        if place not in self.blobs and not isinstance(row, BlobRow):
            return
        match row:
            case BlobRow(partition, digest, size, grace):
                number = next(self.upload_numbers)
                self.uploads[number] = Upload(partition, now + (grace or 0), Blob(digest, size))
                self.blobs[place] = number
                self.ledger.blobs[place] = True
            case ChunkRow(_, _, _, data):
                self.uploads[self.blobs[place]].chunks.append((data, hashlib.sha256(data).digest()))
            case HoldingRow(_, _, holder):
                self.holders.setdefault(place, set()).add(holder)

    def forget(self, upload: int) -> None:
        gone = self.uploads.pop(upload)
        if gone.blob is not None:
            place = (gone.partition, gone.blob.digest)
            del self.blobs[place]
            self.ledger.blobs.pop(place, None)
            self.holders.pop(place, None)

    def wipe(self) -> None:
        for key in list(self.ledger.records):
            self.ledger.put_record(key, None)
        for key in list(self.ledger.work):
            self.ledger.put_work(key, None)
        self.save(self.now())
        self.note = None
        for kept in (
            self.ledger.streams,
            self.ledger.dedupes,
            self.ledger.blobs,
            self.entries,
            self.uploads,
            self.blobs,
            self.holders,
            self.names,
            self.declared.shapes,
        ):
            kept.clear()


# --------------------------------------------------------------------------------------------------------------- queues


Rows = dict[Key, WorkRow | None]
Heap = list[tuple[int, int, int, Key]]
T = TypeVar("T", bound=Sized)


class MemoryQueues:
    def __init__(self) -> None:
        self.leases: dict[str, int] = {}  # worker: end of its lease
        self.held: defaultdict[str, set[Key]] = defaultdict(set)  # worker: items
        self._lanes: defaultdict[str, OrderedDict[str, OrderedDict[str, Heap]]] = defaultdict(OrderedDict)
        self._later: defaultdict[str, list[tuple[int, int, Key]]] = defaultdict(list)
        self._number = count()

    def change(self, key: Key, old: WorkRow | None, new: WorkRow | None, *, now: int) -> None:
        if old is not None and old.holder is not None:
            self.held[old.holder].discard(key)
        if new is None:
            return
        if new.holder is not None:
            self.held[new.holder].add(key)
        elif new.state == "waiting":
            if new.ready_at > now:
                heappush(self._later[key[1]], (new.ready_at, next(self._number), key))
            else:
                self._ready(key, new)

    def _ready(self, key: Key, row: WorkRow) -> None:
        lane = self._lanes[key[1]].setdefault(row.lane, OrderedDict())
        heappush(lane.setdefault(key[0], []), (-row.priority, row.ready_at, next(self._number), key))

    def expired(self, queue: str, rows: Rows, *, now: int) -> Iterator[Key]:
        """Yield the items whose holder's lease has ended."""
        gone = [worker for worker in self.held if self.leases.get(worker, 0) <= now]
        for worker in gone:
            yield from sorted((key for key in self.held[worker] if key[1] == queue), key=lambda key: _fence(rows[key]))

    def ready(self, queue: str, rows: Rows, *, now: int) -> Iterator[Key]:
        """Yield the waiting items that are ready: the fairness keys in turn, and the partitions of each in turn."""
        later = self._later[queue]
        while later and later[0][0] <= now:
            _, _, key = heappop(later)
            row = rows.get(key)
            if row is not None and row.state == "waiting" and row.ready_at <= now:
                self._ready(key, row)
        lanes = self._lanes[queue]
        while lanes:
            name, lane = next(iter(lanes.items()))
            found = None
            while lane and found is None:
                partition, heap = next(iter(lane.items()))
                found = self._next(name, heap, rows, now)
                _passed(lane, partition, heap)
            _passed(lanes, name, lane)
            if found is not None:
                yield found

    def _next(self, name: str, heap: Heap, rows: Rows, now: int) -> Key | None:
        while heap:
            priority, ready_at, _, key = heappop(heap)
            row = rows.get(key)
            if row is None or row.state != "waiting" or row.ready_at > now:
                continue
            if (row.lane, -row.priority, row.ready_at) == (name, priority, ready_at):
                return key
        return None


def _passed(turns: OrderedDict[str, T], name: str, left: T) -> None:
    """End a turn: move the name to the end, or remove it if it has no items left."""
    if left:
        turns.move_to_end(name)
    else:
        del turns[name]


def _fence(row: WorkRow | None) -> int:
    return row.fence if row else 0
