"""Keeps a ledger in step with the file: loads the keys that commits touch, saves their changes with checksums.

Loaded keys stay known between batches until another process writes (`data_version`). A rollback or a write of another
process discards them all. The checksums detect a flipped byte in a value, which SQLite itself does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

from keelbolt.errors import InvalidRequest, StorageCorrupt
from keelbolt.kernel.blobs import STAGED_SECONDS
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.contract import LEASE_SECONDS
from keelbolt.kernel.declarations import Catalog, IndexChanges, dump_fields, load_fields
from keelbolt.kernel.judge import MICROSECONDS
from keelbolt.kernel.ledger import Key, Ledger, RecordState, StreamState, WorkRow, stored_state, wanted_by, work_state
from keelbolt.kernel.sqlite.connection import SQL, SqliteConnection, rows_of_marks
from keelbolt.kernel.sqlite.schema import load_catalog
from keelbolt.kernel.sqlite.worker_locks import WorkerLocks
from keelbolt.kernel.transfer.ports import WriteBlock

KNOWN_KEYS = 5000  # records, streams and partitions kept between batches; a record and its stream take about 2 KB
LOAD_ROWS = 128  # keys per statement


class SqliteRows:
    def __init__(self, connection: SqliteConnection, locks: WorkerLocks | None = None) -> None:
        self.connection = connection
        self.locks = locks
        self.ledger = Ledger()
        self.catalog = Catalog()
        self.mark: WriteBlock | None = None
        self.rows = 0  # rows written since the last checkpoint
        self._partitions: set[str] = set()
        self._data_version = -1
        self._last_record = 0
        self._saved_fence = 0

    # ------------------------------------------------------------------------------------------------------- load

    def begin(self) -> None:
        """Discard outdated state. Must be called first in every transaction."""
        (version,) = self.connection.execute("PRAGMA data_version").fetchone()
        if version != self._data_version:
            self._forget_keys()
            self._data_version = version
            ledger = self.ledger
            row = self.connection.execute(SQL["last_ids"]).fetchone()
            self._last_record, ledger.last_stream, ledger.last_fence = row
            self._saved_fence = ledger.last_fence
            self.catalog = load_catalog(self.connection, self.catalog)
            mark = self.connection.execute(SQL["get_mark"]).fetchone()
            self.mark = WriteBlock.load(mark[0]) if mark else None

    def forget(self) -> None:
        """Discard all loaded state after a rollback, including the catalog.

        The catalog's version may not be committed; another process may then use it for a different catalog.
        """
        self._forget_keys()
        self.catalog = Catalog()

    def _forget_keys(self) -> None:
        self.ledger = Ledger()
        self._data_version = -1
        self._partitions.clear()

    def load(self, commits: Iterable[tuple[str, Sequence[Operation]]]) -> None:
        """Load every key that these commits touch into the ledger."""
        ledger = self.ledger
        wanted = wanted_by(commits, ledger)
        if wanted.records:
            self._load_records(tuple(wanted.records))
        if wanted.takes:
            self._load_bodies(wanted.takes)
        if wanted.streams:
            self.load_streams(tuple(wanted.streams))
        if wanted.appends:
            for number, name, seq in self._rows("load_dedupes", tuple(wanted.dedupes(ledger))):
                ledger.dedupes[number, name] = seq
        if wanted.work:
            ledger.work.update(wanted.work)
            for row in self._rows("load_work", tuple(wanted.work)):
                ledger.work[row[:3]] = work_row(row)
        if wanted.blobs:
            ledger.blobs.update(dict.fromkeys(wanted.blobs, False))
            for row in self._rows("load_blobs", tuple(wanted.blobs)):
                ledger.blobs[row] = True

    def load_keys(self, keys: Iterable[Key]) -> None:
        """Load these records into the ledger."""
        self._load_records([key for key in keys if key not in self.ledger.records])

    def load_streams(self, keys: Iterable[Key]) -> None:
        """Load these streams into the ledger."""
        streams = self.ledger.streams
        unknown = [key for key in keys if key not in streams]
        streams.update(dict.fromkeys(unknown))
        for *key, number, head, floor in self._rows("load_streams", unknown):
            streams[tuple(key)] = StreamState(number, head, floor)

    def _load_records(self, keys: Sequence[Key]) -> None:
        records = self.ledger.records
        records.update(dict.fromkeys(keys))
        for partition, collection, key, number, version, fields, expires_at, crc in self._rows("load_records", keys):
            if crc != head_crc(partition, collection, key, version, fields, expires_at):
                raise StorageCorrupt.of(f"a record of {collection!r}")
            state = RecordState(version, load_fields(fields), expires_at, None, number, fields)
            records[partition, collection, key] = state

    def _load_bodies(self, keys: Iterable[Key]) -> None:
        for key in keys:
            state = self.ledger.records[key]
            if state is not None and state.body is None:
                body, crc = self.connection.execute(SQL["load_body"], (state.id,)).fetchone()
                if not body_is_sound(body, crc):
                    raise StorageCorrupt.of(f"a record of {key[1]!r}")
                state.body = body

    def _rows(self, query: str, keys: Sequence[tuple[Any, ...]]) -> Iterable[Any]:
        """Yield the rows of many keys. Sizes are powers of two (the last key repeats) to limit prepared statements."""
        for start in range(0, len(keys), LOAD_ROWS):
            part = list(keys[start : start + LOAD_ROWS])
            size = 1 << (len(part) - 1).bit_length()
            part += [part[-1]] * (size - len(part))
            statement = rows_of_marks(SQL[query], len(part[0]), size)
            yield from self.connection.execute(statement, [value for key in part for value in key])

    # ------------------------------------------------------------------------------------------------------- save

    def save(self, partitions: Iterable[str], *, now: int) -> None:
        """Write the changes of the ledger."""
        ledger = self.ledger
        new = set(partitions) - self._partitions
        if new:
            self.connection.executemany(SQL["insert_partition"], [(name,) for name in new])
            self._partitions |= new
        if ledger.changed_records:
            self._save_records()
        if ledger.entries or ledger.changed_streams:
            self._save_logs()
        if ledger.changed_work:
            self._save_work(now)
        if ledger.holdings:
            self._save_holdings(now)
        self.save_fence()
        ledger.settle()

    def end(self) -> None:
        """Limit the loaded state. Must be called after every committed transaction."""
        ledger = self.ledger
        ledger.dedupes.clear()
        ledger.work.clear()
        ledger.blobs.clear()
        if len(ledger.records) > KNOWN_KEYS:
            ledger.records.clear()
        if len(ledger.streams) > KNOWN_KEYS:
            ledger.streams.clear()
        if len(self._partitions) > KNOWN_KEYS:
            self._partitions.clear()

    def _many(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.rows += len(rows)
            self.connection.executemany(SQL[query], rows)

    def _save_records(self) -> None:
        inserts, updates, patches, deletes = [], [], [], []
        changes = IndexChanges[int]()
        records = self.ledger.records
        for place, old in self.ledger.changed_records.items():
            new = records[place]
            partition, collection, key = place
            if new is not None:
                fields = new.text  # set by a copier, already in stored form
                if fields is None and old is not None and old.fields == new.fields:
                    fields = old.text
                if fields is None:
                    fields = dump_fields(new.fields)
                new.text = fields
                head = head_crc(partition, collection, key, new.version, fields, new.expires_at)
                body = new.body
                if old is None:
                    self._last_record += 1
                    new.id = self._last_record
                    assert body is not None
                    row = (new.id, partition, collection, key, new.version, fields, new.expires_at, head, crc32(body))
                    inserts.append((*row, body))
                else:
                    new.id = old.id
                    if body is not None:
                        updates.append((new.version, fields, new.expires_at, head, crc32(body), body, new.id))
                    else:
                        patches.append((new.version, fields, head, new.id))
                new.body = None
            elif old is not None:
                deletes.append((old.id,))
            else:
                continue
            if old is not None and new is not None and (old.fields is new.fields or old.fields == new.fields):
                new.encoded = old.encoded
                continue
            if old is not None:
                changes.remove(self.catalog.shapes[collection], partition, key, old.fields, old.encoded)
            if new is not None:
                new.encoded = changes.add(self.catalog.shapes[collection], new.id, partition, key, new.fields)
        self._many("delete_record", deletes)
        self._many("insert_record", inserts)
        self._many("update_record", updates)
        self._many("patch_record", patches)
        self._many("delete_index", changes.removed)
        self._many("insert_index", changes.added)
        self._many("add_to_counter", changes.counted())

    def _save_logs(self) -> None:
        ledger = self.ledger
        rows = [
            (
                new.stream,
                new.seq,
                new.at,
                entry_crc(new.stream, new.seq, new.at, new.kind, new.data),
                new.kind,
                new.data,
            )
            for new in ledger.entries
        ]
        self._many("insert_entry", rows)
        self._many(
            "insert_dedupe", [(new.stream, new.dedupe, new.seq) for new in ledger.entries if new.dedupe is not None]
        )
        dropped = [(number, 1 << 62) for number in ledger.drops]
        self._many("trim_entries", ledger.trims + dropped)
        self._many("trim_dedupes", ledger.trims + dropped)
        self._many("delete_stream", [(number,) for number in ledger.drops])
        inserts, updates = [], []
        for key, old in ledger.changed_streams.items():
            new_stream = ledger.streams[key]
            if new_stream is None:
                continue
            if old is not None and old.id == new_stream.id:
                updates.append((new_stream.head, new_stream.floor, new_stream.id))
            else:
                inserts.append((new_stream.id, *key, new_stream.head, new_stream.floor))
        self._many("insert_stream", inserts)
        self._many("update_stream", updates)

    def _save_work(self, now: int) -> None:
        puts, deletes = [], []
        for key in self.ledger.changed_work:
            row = self.ledger.work[key]
            if row is None:
                deletes.append(key)
            else:
                puts.append(work_values(key, row, now=now))
        self._many("delete_work", deletes)
        self._many("put_work", puts)
        until = now + int(LEASE_SECONDS * MICROSECONDS)
        if self.locks is not None:
            for worker in self.ledger.workers:
                self.locks.hold(worker)
        self._many("begin_lease", [(worker, until, now) for worker in self.ledger.workers])

    def _save_holdings(self, now: int) -> None:
        holdings = self.ledger.holdings
        self._many("insert_holding", [holding for holding, held in holdings.items() if held])
        self._many("delete_holding", [holding for holding, held in holdings.items() if not held])
        grace = now + int(STAGED_SECONDS * MICROSECONDS)
        blobs = {(partition, digest): None for partition, digest, _ in holdings}
        self._many("settle_blob", [(grace, *blob) for blob in blobs])

    def save_fence(self) -> None:
        if self.ledger.last_fence != self._saved_fence:
            self._saved_fence = self.ledger.last_fence
            self.connection.execute(SQL["set_meta"], ("last_fence", self._saved_fence))


def work_row(row: Sequence[Any]) -> WorkRow:
    """Parse a row of the work table: the first three columns are its key, the last is its checksum."""
    if not work_is_sound(row):
        raise StorageCorrupt.of(f"an item of the queue {row[1]!r}")
    return WorkRow(work_state(row[3]), *row[4:-1])


def work_values(key: Key, row: WorkRow, *, now: int) -> tuple[Any, ...]:
    values = (
        row.lane,
        row.priority,
        row.ready_at,
        row.attempt,
        row.max_attempts,
        row.fence,
        row.holder,
        row.again_at,
        row.reason,
    )
    crc = work_crc(*key, row.state, *values)
    return (*key, stored_state(row.state, row.ready_at, now), *values, crc)


# ------------------------------------------------------------------------------------------------------------ checksums


def body_is_sound(body: object, crc: int) -> bool:
    """Return whether the body matches its checksum. A damaged body may not even be bytes."""
    return isinstance(body, bytes) and crc32(body) == crc


def entry_is_sound(stream: int, seq: int, at: int, kind: str, data: object, crc: int) -> bool:
    return isinstance(data, bytes) and entry_crc(stream, seq, at, kind, data) == crc


# Errors raised for a row that no longer has its original structure.
UNREADABLE = (TypeError, ValueError, LookupError, InvalidRequest)


def head_crc(partition: str, collection: str, key: str, version: int, fields: str, expires_at: int | None) -> int:
    return crc32(f"{partition}\0{collection}\0{key}\0{version}\0{fields}\0{expires_at}".encode("utf-8", "replace"))


def entry_crc(stream: int, seq: int, at: int, kind: str, data: bytes) -> int:
    return crc32(data, crc32(f"{stream}\0{seq}\0{at}\0{kind}".encode()))


def work_crc(*values: str | int | None) -> int:
    return crc32("\0".join(map(str, values)).encode("utf-8", "replace"))


def work_is_sound(row: Sequence[Any]) -> bool:
    """Check a complete row of the work table. The checksum does not cover whether a waiting item is ready."""
    partition, queue, key, state, *values, crc = row
    return bool(work_crc(partition, queue, key, work_state(state), *values) == crc)
