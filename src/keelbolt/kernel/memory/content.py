"""The data of the memory engine, with access for the copier: rows are read and written, and a mark refuses writes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from keelbolt.kernel.blobs import Blob
from keelbolt.kernel.declared import CheckedCollection, Declarations, load_fields
from keelbolt.kernel.ledger import Ledger, RecordState, StreamState, WorkRow
from keelbolt.kernel.logs import Entry
from keelbolt.kernel.memory.indexes import Indexes
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
from keelbolt.kernel.write_blocks import WriteBlock


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
