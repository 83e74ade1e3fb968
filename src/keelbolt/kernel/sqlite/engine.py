"""The SQLite engine: connects the writer, the readers and the notifications to the contract."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import sqlite3
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from keelbolt.errors import StorageCorrupt, StorageError, StorageFull
from keelbolt.kernel.base_kernel import BaseKernel
from keelbolt.kernel.blobs import STAGED_SECONDS, Blob
from keelbolt.kernel.clock import Clock
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import Durability, Problem, Stats, Swept, Wiped, WorkCounts
from keelbolt.kernel.declarations import Catalog, CheckedCollection
from keelbolt.kernel.judge import MICROSECONDS
from keelbolt.kernel.ledger import Key, WorkRow, claimed, work_item
from keelbolt.kernel.logs import LogPage, LogState
from keelbolt.kernel.records import Collection, Record
from keelbolt.kernel.sqlite import inspect, queues
from keelbolt.kernel.sqlite.connection import SQL, Connect, SqliteConnection, connect, prepare
from keelbolt.kernel.sqlite.files import Reserve, WriteLock, check_place
from keelbolt.kernel.sqlite.hints import POLL_SECONDS, Datagrams, Poll
from keelbolt.kernel.sqlite.readers import (
    ReadByWriter,
    ReaderThreads,
    SqliteReaders,
    only,
    read_log,
    read_records,
    scan,
)
from keelbolt.kernel.sqlite.rows import UNREADABLE, SqliteRows, work_row
from keelbolt.kernel.sqlite.schema import (
    cannot_open,
    check_file,
    declare,
    empty_log,
    engine_offset,
    known_boot,
    load_catalog,
    prepare_file,
)
from keelbolt.kernel.sqlite.transfer import FileTransfer, restore_file
from keelbolt.kernel.sqlite.worker_locks import Dead, WorkerLocks
from keelbolt.kernel.sqlite.writer import BATCH_COMMITS, Probe, SqliteWriter, WriteJob
from keelbolt.kernel.transfer.ports import Transfer
from keelbolt.kernel.work import Claim, PartitionTurns, WorkItem, WorkState

logger = logging.getLogger("keelbolt.kernel")

EXIT_SECONDS = 60.0  # as long as a supervisor usually waits; commits not written by then are lost

_writers: weakref.WeakSet[SqliteWriter] = weakref.WeakSet()


def _finish_at_exit() -> None:
    """Write all queued commits before the interpreter ends, also of kernels that were never closed."""
    for writer in tuple(_writers):
        if not writer.stop(EXIT_SECONDS):
            logger.critical("the interpreter exits before all commits were written")


atexit.register(_finish_at_exit)


def _no_probe(_point: str) -> None:
    """Do nothing. Tests stop the process at these points."""


class SQLiteKernel(BaseKernel):
    """A kernel in one file. Several processes may open it, on one machine.

    ``connect``, ``shared``, ``probe`` and ``batch`` are for tests and benchmarks: another kind of connection, a file
    that only one connection can open, a call at each named point of a commit, and the maximum number of commits per
    transaction.
    """

    engine = "sqlite"

    def __init__(
        self,
        path: str,
        *,
        durability: Durability = "durable",
        declare: Iterable[Collection] = (),
        clock: Clock | None = None,
        readers: int = 2,
        connect: Connect = connect,
        shared: bool = True,
        probe: Probe = _no_probe,
        reserve: bool = True,
        batch: int = BATCH_COMMITS,
    ) -> None:
        super().__init__(durability=durability, declare=declare, clock=clock)
        self._path = path
        self._connect = connect
        self._reader_threads = readers
        self._shared = shared
        self._probe = probe
        self._wants_reserve = reserve
        self._batch = batch
        self._locks = WorkerLocks(f"{path}-workers") if shared else None
        self._served = PartitionTurns()
        self._offset = 0
        self._lost_frames = 0

    # -------------------------------------------------------------------------------------------------- lifecycle

    async def _open(self) -> None:
        await asyncio.to_thread(self._open_file)
        loop = asyncio.get_running_loop()
        self._datagrams = Datagrams(f"{self._path}-hints", self._hear)
        if self._shared and not self._datagrams.open(loop):
            logger.warning("no notifications between processes: readers poll every %s s", POLL_SECONDS)
        self._writer = SqliteWriter(
            book=self._book,
            lock=self._lock,
            reserve=self._reserve,
            loop=loop,
            now=self._now,
            wall=self.clock.wall,
            hint=self._datagrams.send,
            woken=self.board.wake,
            probe=self._probe,
            batch=self._batch,
            meter=self.meter,
        )
        self._writer.start()
        _writers.add(self._writer)
        self._readers: SqliteReaders = (
            ReaderThreads(self._connect, self._path, self._reader_threads, self.meter)
            if self._shared
            else ReadByWriter(self._writer)
        )
        self._poll = (
            Poll(self._connect, self._path, self.board, self._locks, self._writer.give_up_waiting)
            if self._locks is not None
            else None
        )

    def _open_file(self) -> None:
        if self._shared:
            check_place(Path(self._path))
        self._reserve = Reserve(f"{self._path}-reserve") if self._wants_reserve else None
        try:
            self._open_connection()
        except StorageFull:
            if self._reserve is None or not self._reserve.release():
                raise
            self._open_connection()  # uses the space of the reserve: to read, release and delete
        if self._reserve is not None and not self._reserve.keep():
            logger.warning("too little free space for the reserve: on a full disk, deletes will fail too")

    def _open_connection(self) -> None:
        self._lock: WriteLock | None = None
        connection: SqliteConnection | None = None
        try:
            connection = self._connect(self._path)
            prepare(connection, self.durability)
            check_file(connection)
            self._lock = WriteLock(self._path) if self._shared else None
            prepare_file(connection, self._lock)
            prepare(connection, self.durability)  # the switch to WAL may have reset journal settings
            if self._lock is not None:
                rebooted = known_boot(connection) not in (None, self.clock.boot())
                self._lost_frames = inspect.lost_frames(connection, self._lock, rebooted=rebooted)
            with self._lock.held() if self._lock is not None else contextlib.nullcontext():
                connection.execute("BEGIN IMMEDIATE")
                self._offset = engine_offset(connection, self.clock)
                self._book = SqliteRows(connection, self._locks)
                self._book.begin()
                connection.execute("COMMIT")
            self._catalog = self._book.catalog
            for name, (shape, _) in self._catalog.shapes.items():
                self.declared.shapes.setdefault(name, shape)
            if self._lost_frames:
                logger.warning("the write-ahead log is damaged: %d frames at its end were lost", self._lost_frames)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if self._lock is not None:
                self._lock.close()
            if isinstance(error, (sqlite3.Error, *UNREADABLE)):
                raise cannot_open(error) from error
            raise

    def _now(self) -> int:
        return self.clock.steady() + self._offset

    async def _close(self) -> None:
        ended = await asyncio.to_thread(self._writer.stop)
        if self._poll is not None:  # closed after the writer, whose wait for the lock it can end
            await self._poll.close()
        await asyncio.sleep(0)  # let the last results arrive
        await asyncio.to_thread(self._readers.close)
        _writers.discard(self._writer)
        self._datagrams.close(asyncio.get_running_loop())
        if not ended:  # a closed descriptor could be another file when the waiting thread wakes
            logger.warning("closed while another process holds the write lock; that process may be suspended")
            return
        # The last connection to a file runs a checkpoint when it closes; SQLite blocks all others meanwhile.
        self._book.connection.close()
        if self._lock is not None:
            self._lock.close()
        if self._locks is not None:
            self._locks.close()

    async def _flush(self) -> None:
        await self._writer.run(_nothing, relief=True)

    async def _declare(self, shape: CheckedCollection) -> None:
        def store(turn: WriteJob) -> None:
            turn.book.catalog = declare(turn.connection, turn.book.catalog, shape)

        await self._writer.run(store, relief=True)

    async def _health(self) -> tuple[bool, bool, str]:
        try:
            await self._readers.run(lambda connection: connection.execute("SELECT 1 FROM meta LIMIT 1").fetchone())
        except StorageError as error:
            return False, False, str(error)
        if self._writer.broken is not None:
            return True, False, str(self._writer.broken)
        try:
            refusal: StorageError | None = await self._writer.run(_refusal, relief=True)
        except StorageError as error:
            return True, False, str(error)
        if refusal is not None:
            return True, False, str(refusal)
        if self._writer.full:
            return True, False, "the disk is full: only reads, deletes and releases work"
        return True, True, "reads and writes work"

    async def _stats(self) -> Stats:
        return await self._readers.run(lambda connection: inspect.stats(connection, self._path, now=self._now()))

    async def _check(self) -> AsyncIterator[Problem]:
        async for problem in inspect.check(self._readers, self._known, self._lost_frames):
            yield problem

    async def _sweep(self, limit: int) -> Swept:
        found: tuple[Swept, list[int]] | StorageError = await self._writer.run(
            lambda turn: _refusal(turn) or queues.sweep(turn, limit), relief=True
        )
        if isinstance(found, StorageError):
            raise found
        swept, blobs = found
        await self._remove_blobs(blobs)
        return swept

    async def _remove_blobs(self, numbers: list[int]) -> None:
        """Remove unnamed blobs in several short transactions. If the process dies, a later sweep continues."""
        while numbers:
            numbers = await self._writer.run(partial(queues.remove_blobs, numbers=numbers), relief=True)

    async def wipe(self, partition: str, family: Wiped, *, limit: int = 500) -> int:
        self._guard()
        count: int | StorageError = await self._writer.run(
            lambda turn: _refusal(turn) or queues.wipe(turn, partition, family, limit), relief=True
        )
        if isinstance(count, StorageError):
            raise count
        return count

    async def scrub(self) -> None:
        await self.flush()
        await asyncio.to_thread(empty_log, self._connect, self._path)

    async def _partitions(self, after: str, limit: int) -> Sequence[str]:
        rows = await self._readers.run(
            lambda connection: connection.execute(SQL["list_partitions"], (after, limit)).fetchall()
        )
        return [name for (name,) in rows]

    # ----------------------------------------------------------------------------------------------------- commit

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        return self._writer.commit(partition, operations)

    # ---------------------------------------------------------------------------------------------------- records

    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]:
        now = self._now()
        return await self._readers.get(
            lambda connection: read_records(connection, partition, collection, keys, now=now)
        )

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
        now = self._now()

        def read(connection: SqliteConnection) -> list[tuple[bytes, Record]]:
            name = self._known(connection).index(shape, index)
            return scan(connection, shape.name, name, low, high, now=now, newest_first=newest_first, limit=limit)

        return await self._readers.run(read)

    async def _count(
        self, partition: str, shape: CheckedCollection, index: int, low: bytes, high: bytes, cap: int
    ) -> int:
        now = self._now()

        def read(connection: SqliteConnection) -> int:
            name = self._known(connection).index(shape, index)
            if shape.collection.expiring:
                return only(connection.execute(SQL["count_live"], (name, low, high, now, cap)).fetchone())
            return only(connection.execute(SQL["count_range"], (name, low, high, cap)).fetchone())

        return await self._readers.run(read)

    async def _counter(self, partition: str, shape: CheckedCollection, counter: int, group: bytes) -> int:
        def read(connection: SqliteConnection) -> int:
            name = self._known(connection).counter(shape, counter)
            return only(connection.execute(SQL["get_counter"], (name, group)).fetchone())

        return await self._readers.get(read)

    def _known(self, connection: SqliteConnection) -> Catalog:
        """Return the catalog at the moment of this read; another process may have changed it."""
        self._catalog = load_catalog(connection, self._catalog)
        return self._catalog

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
        place = (partition, log, stream)
        return await self._readers.get(
            lambda connection: read_log(
                connection, place, after, before, limit=limit, max_bytes=max_bytes, backward=backward
            )
        )

    async def _log_state(self, partition: str, log: str, stream: str) -> LogState:
        place = (partition, log, stream)
        row = await self._readers.get(lambda c: c.execute(SQL["get_stream"], place).fetchone())
        return LogState(row[1], row[2]) if row else LogState(0, 0)

    async def _seq_of(self, partition: str, log: str, stream: str, dedupe: str) -> int | None:
        place = (partition, log, stream, dedupe)
        row = await self._readers.get(lambda c: c.execute(SQL["get_seq"], place).fetchone())
        return row[0] if row else None

    # ------------------------------------------------------------------------------------------------------- work

    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        held: list[tuple[Key, WorkRow]]
        dead: Dead
        held, dead = await self._writer.run(
            lambda turn: queues.claim(turn, self._served, queue, worker, limit, lease_seconds)
        )
        if self._locks is not None and dead.files:
            self._locks.remove(dead.files)
        return [claimed(self.scoped(key[0]), key, row) for key, row in held]

    async def _heartbeat(self, worker: str, lease_seconds: float) -> None:
        await self._writer.run(lambda turn: queues.renew(turn, worker, lease_seconds), relief=True)

    async def _retire(self, worker: str) -> int:
        freed: int = await self._writer.run(lambda turn: queues.retire(turn, worker), relief=True)
        if self._locks is not None:
            self._locks.release(worker)
        return freed

    async def _work(self, partition: str, queue: str, key: str) -> WorkItem | None:
        place = (partition, queue, key)
        row = await self._readers.get(lambda c: c.execute(SQL["get_work"], place).fetchone())
        return work_item(place, work_row(row), now=self._now()) if row else None

    async def _list_work(
        self, partition: str, queue: str, state: WorkState, after: str, limit: int
    ) -> Sequence[WorkItem]:
        place = (partition, queue, after, limit)
        rows = await self._readers.run(lambda c: c.execute(SQL[f"list_{state}"], place).fetchall())
        now = self._now()
        return [work_item(row[:3], work_row(row), now=now) for row in rows]

    async def _count_work(self, queues: Sequence[str]) -> WorkCounts:
        now = self._now()
        return await self._readers.run(lambda connection: inspect.count_work(connection, queues, now=now))

    # ------------------------------------------------------------------------------------------------------ blobs

    async def _stage(self, partition: str, keep_seconds: float) -> int:
        def begin(turn: WriteJob) -> int:
            expires_at = turn.now + int(max(keep_seconds, STAGED_SECONDS) * MICROSECONDS)
            return only(turn.connection.execute(SQL["begin_blob"], (partition, expires_at)).fetchone())

        number: int = await self._writer.run(begin)
        return number

    async def _stage_chunk(self, partition: str, upload: int, number: int, data: bytes, digest: bytes) -> None:
        def write(turn: WriteJob) -> None:
            turn.connection.execute(SQL["insert_chunk"], (number, digest, data, upload))
            turn.book.rows += len(data) // 4096 + 2

        await self._writer.run(write)

    async def _stage_done(self, partition: str, upload: int, blob: Blob, keep_seconds: float) -> bool:
        def done(turn: WriteJob) -> tuple[bool, bool]:  # whether the blob is there, and the upload is not needed
            expires_at = turn.now + int(keep_seconds * MICROSECONDS)
            if turn.connection.execute(SQL["find_blob"], (partition, blob.digest)).fetchone():
                turn.connection.execute(SQL["prolong_blob"], (expires_at, partition, blob.digest))
                turn.connection.execute(SQL["unname_blob"], (upload,))
                return True, True
            if turn.connection.execute(
                SQL["name_blob"], (blob.digest, blob.size, expires_at, upload, blob.chunks)
            ).fetchone():
                turn.book.ledger.blobs[partition, blob.digest] = True
                turn.connection.execute(SQL["insert_partition"], (partition,))
                return True, False
            turn.connection.execute(SQL["unname_blob"], (upload,))
            return False, True

        there, unneeded = await self._writer.run(done)
        if unneeded:
            await self._remove_blobs([upload])
        return bool(there)

    async def _stage_undo(self, partition: str, upload: int) -> None:
        await self._writer.run(lambda turn: turn.connection.execute(SQL["unname_blob"], (upload,)), relief=True)
        await self._remove_blobs([upload])

    async def _blob(self, partition: str, digest: str) -> tuple[int, int] | None:
        def read(connection: SqliteConnection) -> tuple[int, int] | None:
            row: tuple[int, int] | None = connection.execute(SQL["find_blob"], (partition, digest)).fetchone()
            if row is not None and not isinstance(row[1], int):
                raise StorageCorrupt.of("a blob")
            return row

        return await self._readers.get(read)

    async def _blob_chunk(self, partition: str, upload: int, number: int) -> tuple[bytes, bytes] | None:
        row: tuple[bytes, bytes] | None = await self._readers.run(
            lambda c: c.execute(SQL["get_chunk"], (upload, number)).fetchone()
        )
        return row

    # ----------------------------------------------------------------------------------------------------- copies

    async def restore_native(self, file: Path, tell: Callable[[int, int], None]) -> bool:
        await asyncio.to_thread(restore_file, file, self._path, tell)
        return True

    def _transfer(self) -> Transfer:
        if not self._shared:
            return super()._transfer()
        return FileTransfer(
            path=self._path,
            connect=self._connect,
            writer=self._writer,
            readers=self._readers,
            now=self._now,
            declared=self.declared,
        )

    # ---------------------------------------------------------------------------------------------- notifications

    def _hear(self, digests: list[bytes]) -> None:
        """Wake the watches for a commit of another process."""
        self.board.wake_digests(digests)


def _nothing(_turn: WriteJob) -> None:
    """Do nothing, in order with the other jobs."""


def _refusal(turn: WriteJob) -> StorageError | None:
    """Return the mark's refusal. It is not raised, since that would fail the whole batch."""
    return turn.book.mark.refusal(turn.now) if turn.book.mark is not None else None
