"""Loads what the commits of a batch touch into a ledger, and saves what they changed: a statement or two per table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from keelbolt.storage.blobs import STAGED_SECONDS
from keelbolt.storage.catalog import Catalog, IndexChanges
from keelbolt.storage.commits import Operation
from keelbolt.storage.contract import LEASE_SECONDS
from keelbolt.storage.declared import dump_fields, load_fields
from keelbolt.storage.judge import MICROSECONDS
from keelbolt.storage.ledger import Key, Ledger, RecordState, StreamState, WorkRow, stored_state, work_state
from keelbolt.storage.marks import Mark
from keelbolt.storage.postgres.catalog import add_counters
from keelbolt.storage.postgres.connection import Connection, long, short
from keelbolt.storage.postgres.entries import index_changes
from keelbolt.storage.wanted import wanted_by


class Book:
    """One batch: a fresh ledger, on a connection in a transaction that holds the locks."""

    def __init__(self, connection: Connection, sql: dict[str, str], *, shard: int) -> None:
        self.connection = connection
        self.ledger = Ledger()
        self.catalog = Catalog()
        self.mark: Mark | None = None
        self._sql = sql
        self._shard = shard

    # ------------------------------------------------------------------------------------------------------- load

    async def load(self, batch: UUID, commits: Iterable[tuple[str, Sequence[Operation]]]) -> tuple[int, int] | None:
        """Make the ledger know every key that these commits touch.

        Answers the database's time and the version of the catalog; None when this batch was committed already.
        """
        ledger = self.ledger
        wanted = wanted_by(commits, ledger)
        begun = await self._begin(batch, wanted.records, wanted.streams)
        if begun is None:
            return None
        if wanted.takes:
            for key, (body,) in await self._rows("load_bodies", wanted.takes):
                state = ledger.records[key]
                assert state is not None
                state.body = body
        if wanted.appends:
            await self._load_dedupes(wanted.dedupes(ledger))
        if wanted.work:
            ledger.work.update(wanted.work)
            for key, row in await self._rows("load_work", wanted.work):
                ledger.work[key] = work_row(row)
        if wanted.blobs:
            ledger.blobs.update(dict.fromkeys(wanted.blobs, False))
            for partition, digest in await self.connection.fetch(
                self._sql["load_blobs"], *_columns(tuple(wanted.blobs), 2)
            ):
                ledger.blobs[partition, digest] = True
        return begun

    async def _begin(self, batch: UUID, records: dict[Key, None], streams: dict[Key, None]) -> tuple[int, int] | None:
        ledger = self.ledger
        ledger.records.update(records)
        ledger.streams.update(streams)
        by_name = {1: _named(records), 2: _named(streams)}
        columns = (*_columns(tuple(by_name[1]), 3), *_columns(tuple(by_name[2]), 3))
        begun: tuple[int, int] | None = None
        for kind, partition, family, name, a, b, c, text in await self.connection.fetch(
            self._sql["begin"], batch, *columns
        ):
            if kind == 0:
                begun = (a, int(text))
                self.mark = Mark.load(partition)
                ledger.last_stream = ledger.last_fence = b
            elif kind == 1:
                ledger.records[by_name[1][partition, family, name]] = RecordState(a, load_fields(text), b, None)
            else:
                ledger.streams[by_name[2][partition, family, name]] = StreamState(a, b, c)
        return begun

    async def _load_dedupes(self, wanted: Iterable[tuple[int, str]]) -> None:
        by_name = {(number, short(dedupe)): dedupe for number, dedupe in wanted}
        columns = _columns(tuple(by_name), 2)
        for number, name, seq in await self.connection.fetch(self._sql["load_dedupes"], *columns):
            self.ledger.dedupes[number, by_name[number, name]] = seq

    async def _rows(self, query: str, keys: Iterable[Key]) -> list[tuple[Key, Sequence[Any]]]:
        """The rows of these keys, each with its key and without the three columns that name it."""
        by_name = _named(keys)
        rows = await self.connection.fetch(self._sql[query], *_columns(tuple(by_name), 3))
        return [(by_name[tuple(row[:3])], row[3:]) for row in rows]

    # ------------------------------------------------------------------------------------------------------- save

    async def save(self, partitions: Iterable[str], *, now: int) -> None:
        """Write what the ledger has changed. Counters come last: they are the only rows that others may hold."""
        ledger = self.ledger
        changes = index_changes()
        replaced = await self._save_records(changes) if ledger.changed_records else []
        if replaced or ledger.entries or ledger.changed_streams:
            await self._save_logs(replaced)
        if ledger.changed_work:
            await self._save_work(now)
        if ledger.holdings:
            await self._save_holdings(now)
        await self._many("insert_partitions", [(name,) for name in sorted(partitions)])
        await add_counters(self.connection, self._sql, changes, shard=self._shard)

    async def _many(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement that takes its rows as one array per column."""
        if rows:
            await self.connection.execute(self._sql[query], *zip(*rows, strict=True))

    async def _save_records(self, changes: IndexChanges[str]) -> list[tuple[Any, ...]]:
        """Write what is new, patched or gone; answers the rows whose body is replaced, for `replace_and_append`."""
        inserts, updates, patches, deletes = [], [], [], []
        for (partition, collection, key), old in self.ledger.changed_records.items():
            new = self.ledger.records[partition, collection, key]
            if old is None and new is None:
                continue
            name = short(key)
            place = (partition, collection, name)
            if new is None:
                deletes.append(place)
            elif old is None:
                row = (new.version, dump_fields(new.fields), new.expires_at, new.body)
                inserts.append((*place, long(key), *row))
            elif new.body is not None:
                updates.append((*place, new.version, dump_fields(new.fields), new.expires_at, new.body))
            else:
                patches.append((*place, new.version, dump_fields(new.fields)))
            if old is not None and new is not None and old.fields == new.fields:
                continue
            if old is not None:
                changes.remove(self.catalog.shapes[collection], partition, key, old.fields)
            if new is not None:
                changes.add(self.catalog.shapes[collection], name, partition, key, new.fields)
        await self._many("delete_records", deletes)
        await self._many("insert_records", inserts)
        await self._many("patch_records", patches)
        await self._many("delete_index", changes.removed)
        await self._many("insert_index", changes.added)
        return updates

    async def _save_logs(self, replaced: Sequence[tuple[Any, ...]]) -> None:
        ledger = self.ledger
        dropped = [(number, 1 << 62) for number in ledger.drops]
        await self._many("delete_streams", [(number,) for number in ledger.drops])
        inserts, updates = [], []
        for (partition, log, key), old in ledger.changed_streams.items():
            new = ledger.streams[partition, log, key]
            if new is None:
                continue
            if old is not None and old.id == new.id:
                updates.append((new.id, new.head, new.floor))
            else:
                inserts.append((new.id, partition, log, short(key), long(key), new.head, new.floor))
        await self._many("insert_streams", inserts)
        if replaced or updates or ledger.entries:
            rows = [(new.stream, new.seq, new.at, new.kind, new.data) for new in ledger.entries]
            columns = (*_columns(replaced, 7), *_columns(updates, 3), *_columns(rows, 5))
            await self.connection.execute(self._sql["replace_and_append"], *columns)
        await self._many(
            "insert_dedupes",
            [
                (new.stream, short(new.dedupe), long(new.dedupe), new.seq)
                for new in ledger.entries
                if new.dedupe is not None
            ],
        )
        await self._many("trim_entries", ledger.trims + dropped)
        await self._many("trim_dedupes", ledger.trims + dropped)

    async def _save_work(self, now: int) -> None:
        puts, deletes = [], []
        for partition, queue, key in self.ledger.changed_work:
            row = self.ledger.work[partition, queue, key]
            if row is None:
                deletes.append((partition, queue, short(key)))
                continue
            state = stored_state(row.state, row.ready_at, now)
            values = (state, row.lane, row.priority, row.ready_at, row.attempt, row.max_attempts, row.fence)
            puts.append((partition, queue, short(key), long(key), *values, row.holder, row.again_at, row.reason))
        await self._many("delete_work", deletes)
        await self._many("put_work", puts)
        if self.ledger.workers:
            until = now + int(LEASE_SECONDS * MICROSECONDS)
            await self.connection.execute(self._sql["begin_leases"], list(self.ledger.workers), until, now)

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


def _named(keys: Iterable[Key]) -> dict[tuple[str, str, str], Key]:
    """The keys by their names in the tables."""
    return {(partition, family, short(key)): (partition, family, key) for partition, family, key in keys}


def _columns(rows: Sequence[Sequence[Any]], count: int) -> Sequence[Sequence[Any]]:
    """The rows as one array per column, of which there are so many even when there are no rows."""
    return list(zip(*rows, strict=True)) or [()] * count


def work_row(row: Sequence[Any]) -> WorkRow:
    """A row of the work table, from its state on."""
    return WorkRow(work_state(row[0]), *row[1:])
