"""The PostgreSQL engine: connects the committer, the reader pool and the notifications to the kernel contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Any

from keelbolt.errors import CannotOpen, StorageError, StorageUnavailable, StorageUnreachable
from keelbolt.kernel.base_kernel import BaseKernel
from keelbolt.kernel.blobs import STAGED_SECONDS, Blob
from keelbolt.kernel.clock import Clock
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import Durability, Problem, Stats, Swept, WorkCounts
from keelbolt.kernel.declarations import SLOTS, Catalog, CheckedCollection, load_fields
from keelbolt.kernel.hints import QueueTopic
from keelbolt.kernel.judge import MICROSECONDS
from keelbolt.kernel.ledger import oldest_ready, work_counts, work_item, work_state
from keelbolt.kernel.logs import LogPage, LogState
from keelbolt.kernel.postgres import queues
from keelbolt.kernel.postgres.committer import BATCH_COMMITS, Committer, catalog_lock, worker_lock
from keelbolt.kernel.postgres.connection import (
    ERRORS,
    LATE_SECONDS,
    OPEN_SECONDS,
    Connection,
    UniqueViolationError,
    close_quietly,
    connect,
    is_pooled,
    opening_error,
    plain_url,
    reader_settings,
    short,
    statements,
    writer_settings,
)
from keelbolt.kernel.postgres.hints import PostgresHints
from keelbolt.kernel.postgres.readers import Pages, PostgresReaders
from keelbolt.kernel.postgres.rows import fit, prefix_of, work_row
from keelbolt.kernel.postgres.schema import declare, load_catalog, prepare_schema, prove
from keelbolt.kernel.postgres.transfer import SchemaTransfer
from keelbolt.kernel.records import Collection, Expire, Record
from keelbolt.kernel.transfer.ports import Transfer
from keelbolt.kernel.work import Claim, PartitionTurns, WorkItem, WorkState

ENDLESS = 1 << 62
_STATES = {"waiting": ["ready", "later"], "held": ["held"], "dead": ["dead"]}


class PostgresKernel(BaseKernel):
    """A kernel in a schema of a PostgreSQL database. Any number of processes may open it."""

    engine = "postgresql"

    def __init__(
        self,
        url: str,
        *,
        schema: str = "keelbolt",
        durability: Durability = "durable",
        declare: Iterable[Collection] = (),
        clock: Clock | None = None,
        connections: int = 5,
        poll: bool = False,
        trusted: bool = False,
        batch: int = BATCH_COMMITS,
    ) -> None:
        super().__init__(durability=durability, declare=declare, clock=clock)
        self._url = plain_url(url)
        self._schema = schema
        self._worker_lock = partial(worker_lock, schema)
        self._sql = statements(schema)
        self._connections = connections
        self._poll = poll
        self._trusted = trusted
        self._batch = batch
        self._pooled = False
        self._catalog = Catalog()
        self._unsure: dict[tuple[str, str], list[Claim]] = {}
        self._served = PartitionTurns()

    # -------------------------------------------------------------------------------------------------- lifecycle

    async def _open(self) -> None:
        connection = writer = None
        try:
            connection = await connect(self._url, pooled=True, seconds=OPEN_SECONDS)
            self._pooled = await is_pooled(connection)
            await self._check_server(connection)
            await prepare_schema(connection, self._schema)
            writer = await self._connect_writer()
            await prove(connection, writer, self._sql)
            self._catalog = await load_catalog(connection, self._sql, self._catalog)
            self._readers = await PostgresReaders.open(
                self._url,
                self._sql,
                size=self._connections,
                pooled=self._pooled,
                settings=reader_settings(),
                meter=self.meter,
            )
        except BaseException as error:
            await close_quietly(writer)
            if isinstance(error, ERRORS):
                raise opening_error(error, self._url) from error
            raise
        finally:
            await close_quietly(connection)
        for name, (shape, _) in self._catalog.shapes.items():
            self.declared.shapes.setdefault(name, shape)
        self._pages = Pages(self._readers.rows)
        self._hints = PostgresHints(
            connect=self._connect,
            readers=self._readers,
            schema=self._schema,
            board=self.board,
            pooled=self._pooled or self._poll,
        )
        self._committer = Committer(
            connect=self._connect_writer,
            sql=self._sql,
            schema=self._schema,
            settings=writer_settings(self.durability) if self._pooled else {},
            connection=writer,
            clock=self.clock,
            hint=self._hints.hint,
            batch=self._batch,
            meter=self.meter,
        )

    async def _connect(self) -> Connection:
        return await connect(self._url, pooled=self._pooled)

    async def _connect_writer(self) -> Connection:
        return await connect(self._url, pooled=self._pooled, settings=writer_settings(self.durability))

    async def _check_server(self, connection: Connection) -> None:
        """Raise CannotOpen if the server can't provide the requested durability."""
        if await connection.fetchval("SELECT pg_is_in_recovery()"):
            raise CannotOpen("this server is a replica; use the URL of the primary")
        if self.durability == "durable" and not self._trusted and await connection.fetchval("SHOW fsync") == "off":
            raise CannotOpen(
                "this server runs with fsync = off and would lose acknowledged writes at power loss; turn it "
                "on, set durability=relaxed, or set fsync=trusted if the server makes writes durable by other means"
            )

    async def _close(self) -> None:
        await self._committer.close()
        await self._hints.close()
        await self._readers.close()

    async def _flush(self) -> None:
        await self._committer.flush()

    async def _declare(self, shape: CheckedCollection) -> None:
        async def store() -> Catalog:
            async with self._readers.reading() as connection:
                return await declare(connection, self._sql, shape, lock=catalog_lock(self._schema))

        self._catalog = await self._readers.patiently(store)

    async def _health(self) -> tuple[bool, bool, str]:
        try:
            async with asyncio.timeout(LATE_SECONDS), self._readers.writing() as connection:
                replica = await connection.fetchval("SELECT pg_is_in_recovery()")
                if not replica:
                    await queues.obey(connection, self._sql)
        except TimeoutError:
            return False, False, str(StorageUnreachable())
        except StorageUnavailable as refusal:
            return not isinstance(refusal, StorageUnreachable), False, str(refusal)
        except StorageError as error:
            return False, False, str(error)
        if replica:
            return True, False, "this server is now a replica and refuses writes"
        how = "polling, behind a pooler" if self._pooled else "polling" if self._poll else "listening"
        return True, True, f"reads and writes work; {how}"

    async def _stats(self) -> Stats:
        async with self._readers.looking() as look:
            records = await look("stats_records")
            items = await look("stats_work")
            (rest,) = await look("stats_rest")
            ((size, version),) = await look("stats_server", self._schema)
        partitions, streams, entries, blobs, blob_bytes, workers = rest
        return Stats(
            partitions=partitions,
            records={name: count for name, count in records},  # noqa: C416 - rows are not pairs
            streams=streams,
            entries=entries,
            blobs=blobs,
            blob_bytes=blob_bytes,
            work=work_counts(items),
            workers=workers,
            bytes=size,
            engine={"server": version, "schema": self._schema, "pooled": "yes" if self._pooled else "no"},
        )

    async def _check(self) -> AsyncIterator[Problem]:
        after = 0
        while rows := await self._look("check_streams", after):
            for _, log, name, head, floor, count, last in rows:
                if last != head or count != head - floor:
                    yield Problem(f"log {log}/{name[:80]}", f"it has {count} entries from {floor + 1} to {head}")
            after = rows[-1][0]
        ((orphans,),) = await self._look("check_orphans")
        if orphans:
            yield Problem("logs", f"{orphans} entries belong to no stream")
        for shape, base in tuple(self._catalog.shapes.values()):
            for problem in await self._check_collection(shape, base):
                yield problem

    async def _look(self, query: str, *values: Any) -> list[Any]:
        async with self._readers.looking() as look:
            return await look(query, *values)

    async def _check_collection(self, shape: CheckedCollection, base: int) -> list[Problem]:
        problems = []
        async with self._readers.looking() as look:
            ((count,),) = await look("count_records", shape.name)
            (entries,) = await look("count_entries", shape.name)
            for index, found in zip(shape.indexes, entries, strict=False):
                if found != count:
                    where = f"index {shape.name}/{index.name}"
                    problems.append(Problem(where, f"{found} entries for {count} records"))
            for number, names in enumerate(shape.counters):
                ((total,),) = await look("sum_counter", base + number)
                if total != count:
                    where = f"counter {shape.name}/{','.join(names) or 'all'}"
                    problems.append(Problem(where, f"its total is {total} for {count} records"))
        return problems

    async def _sweep(self, limit: int) -> Swept:
        now = (await self._readers.row("now"))[0]
        expired = await self._readers.rows("expired_records", now, limit)
        receipts = await asyncio.gather(
            *(self._committer.commit(partition, (Expire(collection, key),)) for partition, collection, key in expired)
        )
        async with self._readers.writing() as connection:
            blobs, workers = await queues.sweep_blobs_and_workers(connection, self._sql, self._worker_lock, limit)
        return Swept(sum(receipt.outcomes == (1,) for receipt in receipts), blobs, workers)

    async def _partitions(self, after: str, limit: int) -> Sequence[str]:
        return [row[0] for row in await self._readers.rows("list_partitions", after, limit)]

    # ----------------------------------------------------------------------------------------------------- commit

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        return self._committer.commit(partition, operations)

    # ---------------------------------------------------------------------------------------------------- records

    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]:
        found: list[Record | None] = [None] * len(keys)
        rows = await self._readers.rows("get_records", partition, collection, [short(key) for key in keys])
        for place, version, fields, body in rows:
            found[place - 1] = Record(collection, keys[place - 1], version, body, load_fields(fields))
        return found

    def _bound(self, shape: CheckedCollection, index: int, bound: bytes) -> bytes:
        return _fit(shape, index, bound)

    async def _scan(
        self,
        partition: str,
        shape: CheckedCollection,
        index: int,
        low: bytes,
        high: bytes,
        *,
        newest_first: bool,
        limit: int,
    ) -> list[tuple[bytes, Record]]:
        query = "scan_down" if newest_first else "scan_up"
        low, high = _fit(shape, index, low), _fit(shape, index, high)
        while True:
            column, prefix = self._index(shape, index)
            rows = await self._readers.rows(f"{query}_{column}", prefix + low, prefix + high, limit)
            if await self._same_catalog(rows):
                return [
                    (entry[len(prefix) :], Record(shape.name, key, version, body, load_fields(fields)))
                    for _, entry, key, version, body, fields in rows
                    if entry is not None
                ]

    async def _count(
        self, partition: str, shape: CheckedCollection, index: int, low: bytes, high: bytes, cap: int
    ) -> int:
        low, high = _fit(shape, index, low), _fit(shape, index, high)
        while True:
            column, prefix = self._index(shape, index)
            rows = await self._readers.rows(f"count_range_{column}", prefix + low, prefix + high, cap)
            if await self._same_catalog(rows):
                return int(rows[0][1])

    def _index(self, shape: CheckedCollection, index: int) -> tuple[int, bytes]:
        """Return the column of an index and the prefix of its entries."""
        number = self._catalog.index(shape, index)
        return number % SLOTS, prefix_of(number)

    async def _counter(self, partition: str, shape: CheckedCollection, counter: int, group: bytes) -> int:
        group = fit(group, 1 + len(shape.counters[counter]))
        while True:
            rows = await self._readers.rows("get_counter", self._catalog.counter(shape, counter), group)
            if await self._same_catalog(rows):
                return int(rows[0][1])

    async def _same_catalog(self, rows: Sequence[Any]) -> bool:
        """Return whether rows were read with the current catalog; if not, load the changed catalog."""
        if int(rows[0][0]) == self._catalog.version:
            return True
        async with self._readers.reading() as connection:
            self._catalog = await load_catalog(connection, self._sql, self._catalog)
        return False

    # ------------------------------------------------------------------------------------------------------- logs

    async def _read_log(
        self,
        partition: str,
        log: str,
        stream: str,
        after: int,
        before: int | None,
        *,
        limit: int,
        max_bytes: int,
        backward: bool,
    ) -> LogPage:
        before = ENDLESS if before is None else before
        return await self._pages.read(
            partition, log, stream, after, before, limit=limit, max_bytes=max_bytes, backward=backward
        )

    async def _log_state(self, partition: str, log: str, stream: str) -> LogState:
        row = await self._readers.row("get_stream", partition, log, short(stream))
        return LogState(row[0], row[1]) if row else LogState(0, 0)

    async def _seq_of(self, partition: str, log: str, stream: str, dedupe: str) -> int | None:
        row = await self._readers.row("get_seq", partition, log, short(stream), short(dedupe))
        return row[0] if row else None

    # ------------------------------------------------------------------------------------------------------- work

    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        claims = self._unsure.pop((queue, worker), [])

        async def attempt() -> list[Claim]:
            nonlocal claims
            async with self._readers.writing() as connection:
                if claims and (held := await queues.still_held(connection, self._sql, worker, claims)):
                    await connection.execute(self._sql["renew_lease"], worker, int(lease_seconds * MICROSECONDS))
                    return held
                claims = []
                claims = await queues.claim(
                    connection,
                    self._sql,
                    self._worker_lock(worker),
                    self._served,
                    queue,
                    worker,
                    limit=limit,
                    lease_seconds=lease_seconds,
                    scoped=self.scoped,
                )
            return claims

        try:
            return await self._readers.patiently(attempt)
        except BaseException:
            # The result of COMMIT is unknown: the next claim of this worker returns the items it holds after all.
            if claims:
                self._unsure[queue, worker] = claims
            raise

    async def _heartbeat(self, worker: str, lease_seconds: float) -> None:
        await self._readers.rows("renew_lease", worker, int(lease_seconds * MICROSECONDS))

    async def _retire(self, worker: str) -> int:
        async def attempt() -> list[str]:
            async with self._readers.writing() as connection:
                return await queues.retire(connection, self._sql, self._worker_lock(worker), worker)

        freed = await self._readers.patiently(attempt)
        self._hints.hint([QueueTopic(queue) for queue in set(freed)])
        return len(freed)

    async def _work(self, partition: str, queue: str, key: str) -> WorkItem | None:
        row = await self._readers.row("get_work", partition, queue, short(key))
        return work_item((partition, queue, key), work_row(row[2:]), now=row[0]) if row else None

    async def _list_work(
        self, partition: str, queue: str, state: WorkState, after: str, limit: int
    ) -> Sequence[WorkItem]:
        place = (partition, queue, _STATES[state], short(after) if after else "", limit)
        rows = await self._readers.rows("list_work", *place)
        return [work_item((partition, queue, row[1]), work_row(row[2:]), now=row[0]) for row in rows]

    async def _count_work(self, queues: Sequence[str]) -> WorkCounts:
        async def read() -> tuple[list[Any], ...]:
            async with self._readers.looking() as look:  # one snapshot: holders and workers belong together
                items, holders = await look("count_items", queues), await look("count_held", queues)
                return items, holders, await look("list_workers"), await look("now")

        items, holders, workers, ((now,),) = await self._readers.patiently(read)
        return WorkCounts(
            work_counts(row[:3] for row in items),
            {name: count for name, count in holders},  # noqa: C416 - rows are not pairs
            {name: (until - now) / MICROSECONDS for name, until in workers},
            oldest_ready([(row[0], row[3]) for row in items if work_state(row[1]) == "waiting"], now=now),
        )

    # ------------------------------------------------------------------------------------------------------ blobs

    async def _stage(self, partition: str, keep_seconds: float) -> int:
        seconds = max(keep_seconds, STAGED_SECONDS)
        return int((await self._readers.row("begin_blob", partition, int(seconds * MICROSECONDS)))[0])

    async def _stage_chunk(self, partition: str, upload: int, number: int, data: bytes, digest: bytes) -> None:
        await self._readers.rows("insert_chunk", upload, number, digest, data)

    async def _stage_done(self, partition: str, upload: int, blob: Blob, keep_seconds: float) -> bool:
        keep = int(keep_seconds * MICROSECONDS)

        async def attempt() -> bool:  # safe to run twice
            async with self._readers.writing() as connection:
                known = await connection.fetchval(self._sql["prolong_blob"], partition, blob.digest, keep)
                if known is None:
                    name = (upload, blob.digest, blob.size, keep, blob.chunks)
                    if await connection.fetchval(self._sql["name_blob"], *name) is None:
                        await connection.execute(self._sql["delete_blob"], [upload])
                        return False
                    await connection.execute(self._sql["insert_partitions"], [partition])
                elif known != upload:
                    await connection.execute(self._sql["delete_blob"], [upload])
                await queues.obey(connection, self._sql)
            return True

        while True:
            try:
                return await self._readers.patiently(attempt)
            except StorageError as error:
                if not isinstance(error.__cause__, UniqueViolationError):
                    raise  # otherwise another process has just stored the same bytes

    async def _stage_undo(self, partition: str, upload: int) -> None:
        await self._readers.rows("delete_blob", [upload])

    async def _blob(self, partition: str, digest: str) -> tuple[int, int] | None:
        row = await self._readers.row("find_blob", partition, digest)
        return (row[0], row[1]) if row else None

    async def _blob_chunk(self, partition: str, upload: int, number: int) -> tuple[bytes, bytes] | None:
        row = await self._readers.row("get_chunk", upload, number)
        return (row[0], row[1]) if row else None

    # ----------------------------------------------------------------------------------------------------- copies

    def _transfer(self) -> Transfer:
        return SchemaTransfer(
            connect=self._connect,
            writing=self._readers.writing,
            sql=self._sql,
            schema=self._schema,
            url=self._url,
            learn=self._learn,
            declare_missing=self._declare_missing,
        )

    async def _learn(self) -> None:
        """Load the collections that a copy has declared."""
        async with self._readers.reading() as connection:
            self._catalog = await load_catalog(connection, self._sql, self._catalog)
        self.declared.shapes |= {name: shape for name, (shape, _) in self._catalog.shapes.items()}

    async def _declare_missing(self) -> None:
        """Declare the collections of this process that a copy lacks."""
        for name, shape in list(self.declared.shapes.items()):
            if name not in self._catalog.shapes:
                await self._declare(shape)


def _fit(shape: CheckedCollection, index: int, bound: bytes) -> bytes:
    return fit(bound, 1 + len(shape.indexes[index].equal))
