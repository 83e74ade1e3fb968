"""Loads the state that the commits of a batch touch into a ledger, and saves the changes.

Index entries and counter groups are shortened to fit into a PostgreSQL index, which takes some 2,700 bytes. An entry
begins with values that are only compared for equality. If these are long, a hash replaces them. The order of entries
with the same beginning stays the same, and queries need no other order.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from keelbolt.kernel.blobs import STAGED_SECONDS
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.contract import LEASE_SECONDS
from keelbolt.kernel.declarations import SLOTS, Catalog, CheckedCollection, dump_fields, load_fields
from keelbolt.kernel.judge import MICROSECONDS
from keelbolt.kernel.ledger import (
    Key,
    Ledger,
    NeededKeys,
    RecordState,
    StreamState,
    WorkRow,
    stored_state,
    wanted_by,
    work_state,
)
from keelbolt.kernel.postgres.connection import Connection, long, short
from keelbolt.kernel.records import MAX_INDEXES, Fields
from keelbolt.kernel.transfer.ports import WriteBlock

LEASE_MICROSECONDS = int(LEASE_SECONDS * MICROSECONDS)

_PARAMETER = re.compile(r"\$(\d+)")
_NO_KEYS: Sequence[Sequence[str]] = ((), (), ())


class PostgresRows:
    """One batch: a new ledger on a connection whose transaction holds the batch's locks."""

    def __init__(self, connection: Connection, sql: dict[str, str], *, shard: int) -> None:
        self.connection = connection
        self.ledger = Ledger()
        self.catalog = Catalog()
        self.mark: WriteBlock | None = None
        self._sql = sql
        self._shard = shard

    # ------------------------------------------------------------------------------------------------------- load

    async def load(self, batch: UUID, commits: Iterable[tuple[str, Sequence[Operation]]]) -> tuple[int, int] | None:
        """Load every key that these commits touch into the ledger.

        Return the database's time and the catalog's version, or None if this batch was committed already.
        """
        ledger = self.ledger
        wanted = wanted_by(commits, ledger)
        begun = await self._begin(batch, wanted)
        if begun is None:
            return None
        if wanted.takes:
            await self._load_bodies(wanted.takes)
        if wanted.appends:
            await self._load_dedupes(wanted.dedupes(ledger))
        if wanted.blobs:
            ledger.blobs.update(dict.fromkeys(wanted.blobs, False))
            for partition, digest in await self.connection.fetch(self._sql["load_blobs"], *_columns(wanted.blobs)):
                ledger.blobs[partition, digest] = True
        return begun

    async def _begin(self, batch: UUID, wanted: NeededKeys) -> tuple[int, int] | None:
        ledger = self.ledger
        ledger.records.update(wanted.records)
        ledger.streams.update(wanted.streams)
        ledger.work.update(wanted.work)
        records, streams, work = tuple(wanted.records), tuple(wanted.streams), tuple(wanted.work)
        columns = (*_key_columns(records), *_key_columns(streams), *_key_columns(work))
        begun: tuple[int, int] | None = None
        for kind, place, a, b, c, d, e, f, t, u, v, w in await self.connection.fetch(
            self._sql["begin"], batch, *columns
        ):
            if kind == 0:
                begun = (a, int(t))
                self.mark = WriteBlock.load(u)
                ledger.last_stream = ledger.last_fence = b
            elif kind == 1:
                ledger.records[records[place - 1]] = RecordState(a, load_fields(t), b, None)
            elif kind == 2:
                ledger.streams[streams[place - 1]] = StreamState(a, b, c)
            else:
                ledger.work[work[place - 1]] = WorkRow(work_state(t), u, a, b, c, d, e, v, f, w)
        # This batch's ids were issued before its rows were locked; a claim may have got a higher fence in between.
        ledger.last_fence = max([ledger.last_fence, *(row.fence for row in ledger.work.values() if row is not None)])
        return begun

    async def _load_bodies(self, takes: Iterable[Key]) -> None:
        by_name = {(partition, family, short(key)): (partition, family, key) for partition, family, key in takes}
        rows = await self.connection.fetch(self._sql["load_bodies"], *_columns(by_name))
        for partition, collection, name, body in rows:
            state = self.ledger.records[by_name[partition, collection, name]]
            assert state is not None
            state.body = body

    async def _load_dedupes(self, wanted: Iterable[tuple[int, str]]) -> None:
        by_name = {(number, short(dedupe)): dedupe for number, dedupe in wanted}
        if not by_name:
            return
        for number, name, seq in await self.connection.fetch(self._sql["load_dedupes"], *_columns(by_name)):
            self.ledger.dedupes[number, by_name[number, name]] = seq

    # ------------------------------------------------------------------------------------------------------- save

    async def save(self, partitions: Iterable[str], *, now: int) -> None:
        """Write the ledger's changes: one statement for the common kinds, separate statements for rare ones."""
        ledger = self.ledger
        totals = Totals()
        inserted, changed, deleted = self._records(totals)
        await self._many("delete_records", deleted)
        await self._many("delete_streams", [(number,) for number in ledger.drops])  # a new one may reuse the name
        streams, heads = self._streams()
        entries = [(new.stream, new.seq, new.at, new.kind, new.data) for new in ledger.entries]
        items, gone = self._work(now)
        parts: dict[str, Sequence[Any]] = {
            "insert_records": _columns(inserted),
            "change_records": _columns(changed),
            "insert_streams": _columns(streams),
            "move_heads": _columns(heads),
            "insert_entries": _columns(entries),
            "put_work": _columns(items),
            "delete_work": _columns(gone),
            "begin_leases": (list(ledger.workers), now + LEASE_MICROSECONDS, now) if ledger.workers else (),
            "add_to_counters": (*counters, self._shard) if (counters := totals.columns()) else (),
        }
        names = tuple(name for name, columns in parts.items() if columns)
        if names:
            values = [column for name in names for column in parts[name]]
            await self.connection.execute(self._together(names, parts), *values)
        if entries:
            await self._save_dedupes()
        if ledger.trims or ledger.drops:
            trims = ledger.trims + [(number, 1 << 62) for number in ledger.drops]
            await self._many("trim_entries", trims)
            await self._many("trim_dedupes", trims)
        if ledger.holdings:
            await self._save_holdings(now)
        await self._many("insert_partitions", [(name,) for name in sorted(partitions)])

    def _together(self, names: tuple[str, ...], parts: Mapping[str, Sequence[Any]]) -> str:
        """Combine several statements into one to save round trips. No two of them may change the same row."""
        if len(names) == 1:
            return self._sql[names[0]]
        key = "+".join(names)
        if key not in self._sql:
            queries, shift = [], 0
            for name in names:
                queries.append(f"{name} AS ({_shifted(self._sql[name], shift)})")
                shift += len(parts[name])
            self._sql[key] = f"WITH {', '.join(queries)} SELECT 1"
        return self._sql[key]

    async def _many(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement that takes its rows as one array per column."""
        if rows:
            await self.connection.execute(self._sql[query], *zip(*rows, strict=True))

    def _records(self, totals: Totals) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the inserted, changed and deleted rows. Index entries and counters change with the fields."""
        inserted, changed, deleted = [], [], []
        ledger, shapes = self.ledger, self.catalog.shapes
        for place, old in ledger.changed_records.items():
            new = ledger.records[place]
            partition, collection, key = place
            if new is None:
                if old is not None:
                    deleted.append((partition, collection, short(key)))
                    totals.add(shapes[collection], partition, old.fields, -1)
                continue
            name = short(key)
            if old is not None and old.fields == new.fields:
                values = (new.version, None, new.expires_at, new.body)
                changed.append((partition, collection, name, *values, *NO_ENTRIES))
                continue
            shape = shapes[collection]
            totals.add(shape, partition, new.fields, 1)
            row = (new.version, dump_fields(new.fields), new.expires_at, new.body)
            entries = entries_of(shape, partition, key, new.fields)
            if old is None:
                inserted.append((partition, collection, name, None if name is key else key, *row, *entries))
            else:
                totals.add(shape, partition, old.fields, -1)
                changed.append((partition, collection, name, *row, *entries))
        return inserted, changed, deleted

    def _streams(self) -> tuple[list[Any], list[Any]]:
        """Return the rows of new streams, and the new heads of existing ones."""
        streams, heads = [], []
        for place, old in self.ledger.changed_streams.items():
            new = self.ledger.streams[place]
            if new is None:
                continue
            if old is not None and old.id == new.id:
                heads.append((new.id, new.head, new.floor))
            else:
                partition, log, key = place
                streams.append((new.id, partition, log, short(key), long(key), new.head, new.floor))
        return streams, heads

    def _work(self, now: int) -> tuple[list[Any], list[Any]]:
        """Return the rows of new or changed work items, and the keys of deleted ones."""
        items, gone = [], []
        for place, old in self.ledger.changed_work.items():
            row = self.ledger.work[place]
            partition, queue, key = place
            if row is None:
                if old is not None:
                    gone.append((partition, queue, short(key)))
                continue
            state = stored_state(row.state, row.ready_at, now)
            values = (state, row.lane, row.priority, row.ready_at, row.attempt, row.max_attempts, row.fence)
            items.append((partition, queue, short(key), long(key), *values, row.holder, row.again_at, row.reason))
        return items, gone

    async def _save_dedupes(self) -> None:
        rows = [
            (new.stream, short(new.dedupe), long(new.dedupe), new.seq)
            for new in self.ledger.entries
            if new.dedupe is not None
        ]
        await self._many("insert_dedupes", rows)

    async def _save_holdings(self, now: int) -> None:
        held = {
            (partition, digest, short(holder), long(holder)): on
            for (partition, digest, holder), on in self.ledger.holdings.items()
        }
        await self._many("insert_holdings", [place for place, on in held.items() if on])
        await self._many("delete_holdings", [place[:3] for place, on in held.items() if not on])
        blobs = sorted({(partition, digest) for partition, digest, *_ in held})
        partitions, digests = zip(*blobs, strict=True)
        grace = now + int(STAGED_SECONDS * MICROSECONDS)
        await self.connection.execute(self._sql["settle_blobs"], partitions, digests, grace)


def _shifted(sql: str, by: int) -> str:
    """Return the statement with its parameter numbers raised by ``by``."""
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + by}", sql)


def _key_columns(keys: Sequence[Key]) -> Sequence[Sequence[str]]:
    """Return the partitions, families and shortened names of these keys, one column each."""
    if not keys:
        return _NO_KEYS
    partitions, families, names = zip(*keys, strict=True)
    return partitions, families, [short(name) for name in names]


def _columns(rows: Iterable[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """Return the rows as one array per column; empty if there are no rows."""
    return tuple(zip(*rows, strict=True))


def work_row(row: Sequence[Any]) -> WorkRow:
    """Build a WorkRow from the columns of the work table, starting with its state."""
    return WorkRow(work_state(row[0]), *row[1:])


# -------------------------------------------------------------------------------------------------------------- entries


Place = tuple[
    CheckedCollection, int
]  # a collection in the catalog: its shape and the number of its first index and counter

NO_ENTRIES = (None,) * MAX_INDEXES

BEGINNING_BYTES = 1000  # the order field and the key that follow have at most some 450 bytes each

_HASHED = b"\x21"
_SIZES = {0x01: 1, 0x02: 1, 0x03: 1, 0x10: 9, 0x11: 9}
_DIGEST_BYTES = 32


def prefix_of(base: int) -> bytes:
    """Return the prefix of a collection's entries; each column holds entries of all collections."""
    return (base // SLOTS).to_bytes(2)


def entries_of(place: Place, partition: str, key: str, fields: Fields) -> Sequence[bytes | None]:
    """Return the index entries of a record, one per column."""
    shape, base = place
    if not shape.indexes:
        return NO_ENTRIES
    entries = shape.entries(partition, key, fields)
    if max(map(len, entries)) > BEGINNING_BYTES:
        entries = [fit(entry, 1 + len(index.equal)) for entry, index in zip(entries, shape.indexes, strict=True)]
    prefix = prefix_of(base)
    return (*[prefix + entry for entry in entries], *NO_ENTRIES[len(entries) :])


def groups_of(shape: CheckedCollection, partition: str, fields: Fields) -> list[bytes]:
    """Return the group of a record in each counter."""
    groups = shape.groups(partition, fields)
    if max(map(len, groups), default=0) <= BEGINNING_BYTES:
        return groups
    return [fit(group, 1 + len(names)) for group, names in zip(groups, shape.counters, strict=True)]


class Totals:
    """Sums of counter changes."""

    def __init__(self) -> None:
        self._totals: Counter[tuple[int, bytes]] = Counter()

    def add(self, place: Place, partition: str, fields: Fields, by: int) -> None:
        """Add a record to its counters, or remove it with -1."""
        shape, base = place
        if shape.counters:
            for number, group in enumerate(groups_of(shape, partition, fields), base):
                self._totals[number, group] += by

    def columns(self) -> Sequence[Sequence[Any]]:
        """Return counters, groups and sums as columns, sorted so that two processes never deadlock; empty if none."""
        rows = sorted((number, group, total) for (number, group), total in self._totals.items() if total)
        return tuple(zip(*rows, strict=True))


def fit(encoded: bytes, count: int) -> bytes:
    """Return the bytes; if they are too long, with a hash in place of the first ``count`` values."""
    if len(encoded) <= BEGINNING_BYTES:
        return encoded
    end = 0
    for _ in range(count):
        end += _SIZES.get(encoded[end]) or _text_bytes(encoded, end)
    if end <= BEGINNING_BYTES:
        return encoded
    return _HASHED + hashlib.sha256(encoded[:end]).digest() + encoded[end:]


def _text_bytes(encoded: bytes, start: int) -> int:
    """Return the length of the encoded string at ``start``: up to its NUL, past escaped NULs, with its hash if any."""
    end = start
    while True:
        end = encoded.index(b"\0", end) + 1
        match encoded[end : end + 1]:
            case b"\xff":
                end += 1
            case b"\xfe":
                return end + 1 + _DIGEST_BYTES - start
            case _:
                return end - start
