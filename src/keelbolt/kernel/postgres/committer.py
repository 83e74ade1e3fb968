"""The committer: commits all queued commits in one transaction.

While one batch is being written, the next one queues. If the connection breaks, the committer retries the batch under
the same id on a new connection. If the first attempt was committed after all, its row in the table of batches proves
it, and the callers get the results of that attempt.

A batch takes advisory locks: one per name, out of 512 per partition. A name has a lock whether or not it exists yet, so
that two processes can't insert the same one. All processes take locks in ascending order, so batches never deadlock.
The record, the log and the work item of one task have the same name and share one lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from uuid import UUID
from zlib import crc32

from keelbolt.errors import CommitInDoubt, KeelboltError, StorageFull, StorageUnavailable, StorageUnreachable
from keelbolt.kernel.clock import Clock
from keelbolt.kernel.commits import Operation, Receipt, address, relieves
from keelbolt.kernel.declarations import Catalog
from keelbolt.kernel.hints import Topic
from keelbolt.kernel.ids import new_id
from keelbolt.kernel.judge import judge
from keelbolt.kernel.postgres.connection import (
    ERRORS,
    LOCK_SECONDS,
    LOST,
    OUTAGE_SECONDS,
    STATEMENT_SECONDS,
    Connection,
    close_quietly,
    set_local,
    translate,
)
from keelbolt.kernel.postgres.rows import PostgresRows
from keelbolt.kernel.postgres.schema import load_catalog
from keelbolt.kernel.work import Enqueue
from keelbolt.observability.metrics import Meter

logger = logging.getLogger("keelbolt.kernel")

BATCH_COMMITS = 256
BATCH_OPERATIONS = 4000  # a batch has ten thousand ids, and a commit at most a thousand operations
SHARDS = 16
KNOWN_PARTITIONS = 100_000  # partitions whose registration is remembered

Answer = tuple["asyncio.Future[Receipt]", Receipt | None, KeelboltError | None]


@dataclass(slots=True)
class PostgresCommit:
    """A queued commit of a caller."""

    partition: str
    operations: tuple[Operation, ...]
    future: asyncio.Future[Receipt]
    called: float


@dataclass(slots=True)
class Batch:
    """Commits that are written in one transaction.

    ``answers`` holds their results, computed before COMMIT is sent. ``doubtful`` is the monotonic time since which the
    outcome of that COMMIT is unknown.
    """

    id: UUID
    commits: list[PostgresCommit]
    answers: list[Answer] | None = None
    topics: tuple[Topic, ...] = ()
    doubtful: float | None = None


class Committer:
    def __init__(
        self,
        *,
        connect: Callable[[], Awaitable[Connection]],
        sql: dict[str, str],
        schema: str,
        settings: dict[str, str],
        connection: Connection,
        clock: Clock,
        hint: Callable[[Sequence[Topic]], None],
        meter: Meter,
        batch: int = BATCH_COMMITS,
    ) -> None:
        self._connect = connect
        self._sql = sql
        self._schema = schema
        self._clock = clock
        self._hint = hint
        self._batch = batch
        self._meter = meter
        self._shard = random.randrange(SHARDS)  # noqa: S311 - sharding needs no cryptographic randomness
        self._connection: Connection | None = connection
        self._partitions: set[str] = set()
        self._queue: deque[PostgresCommit] = deque()
        self._wake = asyncio.Event()
        self._called = 0  # commits in total
        self._serving = 0  # commits of the current batch
        self._served = asyncio.Event()  # set for a moment after each batch
        self._closing = False
        self.catalog = Catalog()
        self._begin = f"BEGIN ISOLATION LEVEL READ COMMITTED; {set_local(settings)}"
        self._task = asyncio.get_running_loop().create_task(self._run(), name="keelbolt-committer")

    def commit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._queue.append(PostgresCommit(partition, operations, future, time.monotonic()))
        self._called += 1
        self._wake.set()
        return future

    async def flush(self) -> None:
        """Wait until all earlier commits are written, also those whose callers were canceled."""
        earlier = self._called
        while self._called - len(self._queue) - self._serving < earlier:
            await self._served.wait()

    async def close(self) -> None:
        self._closing = True
        self._wake.set()
        await self._task
        await close_quietly(self._connection)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                batch = Batch(UUID(new_id()), self._take())
                self._serving = len(batch.commits)
                await self._serve(batch)
                self._serving = 0
                self._served.set()
                self._served.clear()
            if self._closing:
                return

    def _take(self) -> list[PostgresCommit]:
        commits: list[PostgresCommit] = []
        operations = 0
        while self._queue and len(commits) < self._batch and operations < BATCH_OPERATIONS:
            commits.append(self._queue.popleft())
            operations += len(commits[-1].operations)
        return commits

    async def _serve(self, batch: Batch) -> None:
        """Commit a batch and retry on broken connections; fail it when the server stays unreachable."""
        pause, began = 0.02, time.monotonic()
        for attempt in count(1):
            try:
                async with asyncio.timeout(STATEMENT_SECONDS + LOCK_SECONDS):
                    await self._transact(batch)
            except ERRORS as error:
                lost = isinstance(error, LOST)
                await (self._drop_connection() if lost else self._roll_back())
                if isinstance(translate(error), StorageFull) and (relief := self._relief(batch, error)):
                    batch = relief
                    continue
                patient = attempt == 1 or time.monotonic() + pause < self._deadline(batch)
                if (not lost and batch.doubtful is None) or self._is_final(error) or not patient:
                    self._give_up(batch, translate(error), error)
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
            except KeelboltError as error:
                await self._roll_back()
                self._give_up(batch, error)
                return
            except Exception as error:
                logger.exception("the committer failed")
                await self._drop_connection()
                self._give_up(batch, StorageUnavailable(f"the committer failed: {type(error).__name__}"), error)
                return
            else:
                self._meter.batch(len(batch.commits), time.monotonic() - began)
                self._answer(batch)
                return

    def _relief(self, batch: Batch, error: BaseException) -> Batch | None:
        """On a full server, fail the commits that add data and return the others, which free space, as a new batch.

        Return None if the batch can't be split this way.
        """
        relief = [commit for commit in batch.commits if relieves(commit.operations)]
        others = [commit for commit in batch.commits if not relieves(commit.operations)]
        if not relief or not others or batch.doubtful is not None:
            return None
        refusal = translate(error)
        refusal.__cause__ = error
        self._fail(others, refusal)
        return Batch(UUID(new_id()), relief)

    @staticmethod
    def _deadline(batch: Batch) -> float:
        """Return when retries end: OUTAGE_SECONDS after the last call or the start of the doubt."""
        return max(batch.commits[-1].called, batch.doubtful or 0.0) + OUTAGE_SECONDS

    def _give_up(self, batch: Batch, error: KeelboltError, cause: BaseException | None = None) -> None:
        if isinstance(error, StorageUnreachable):
            logger.warning("the storage server does not answer")
            # Commits behind this batch that have already waited OUTAGE_SECONDS fail now, instead of waiting again.
            until = time.monotonic() - OUTAGE_SECONDS
            while self._queue and self._queue[0].called < until:
                self._fail([self._queue.popleft()], error)
        if batch.doubtful is not None:
            error = CommitInDoubt(
                "the connection broke during this commit, which may or may not be stored. Read the data when "
                "the server is back"
            )
        error.__cause__ = cause
        self._fail(batch.commits, error)

    @staticmethod
    def _is_final(error: BaseException) -> bool:
        """Return whether a retry can't help, because the server refused the request."""
        return not translate(error).retryable

    async def _transact(self, batch: Batch) -> None:
        if self._connection is None:
            self._connection = await self._connect()
        connection = self._connection
        commits = [(commit.partition, commit.operations) for commit in batch.commits]
        shared = [catalog_lock(self._schema), *worker_locks_of(self._schema, commits)]
        await connection.execute(
            f"{self._begin}SELECT pg_advisory_xact_lock_shared(n) FROM {_numbers(shared)} "
            f"UNION ALL SELECT pg_advisory_xact_lock(n) FROM {_numbers(locks_of(self._schema, commits))}"
        )
        book = PostgresRows(connection, self._sql, shard=self._shard)
        begun = await book.load(batch.id, commits)
        if begun is None:  # an earlier attempt was committed
            await connection.execute("ROLLBACK")
            return
        batch.doubtful = None  # no earlier attempt was or can still be committed
        now, version = begun
        if book.mark is not None and (refusal := book.mark.refusal(now)) is not None:
            raise refusal
        if version != self.catalog.version:
            self.catalog = await load_catalog(connection, self._sql, self.catalog)
        book.catalog = self.catalog
        answers, partitions = self._judge(batch, book, now)
        new = partitions - self._partitions
        await book.save(new, now=now)
        batch.answers, batch.topics = answers, tuple(book.ledger.topics)
        if not partitions:
            await connection.execute("ROLLBACK")
            return
        batch.doubtful = time.monotonic()
        try:
            await connection.execute("COMMIT")
        except LOST:
            raise
        except ERRORS:
            batch.doubtful = None  # the server reported that it was not committed
            raise
        if len(self._partitions) > KNOWN_PARTITIONS:
            self._partitions.clear()
        self._partitions |= new

    def _judge(self, batch: Batch, book: PostgresRows, now: int) -> tuple[list[Answer], set[str]]:
        at = self._clock.wall()
        answers: list[Answer] = []
        partitions: set[str] = set()
        for commit in batch.commits:
            try:
                outcomes = judge(book.ledger, commit.partition, commit.operations, now=now, at=at)
            except KeelboltError as refusal:
                answers.append((commit.future, None, refusal.with_traceback(None)))  # it refers to the future
            else:
                partitions.add(commit.partition)
                answers.append((commit.future, Receipt(commit.operations, outcomes), None))
        return answers, partitions

    async def _roll_back(self) -> None:
        self._partitions.clear()
        if self._connection is not None:
            try:
                await asyncio.wait_for(self._connection.execute("ROLLBACK"), 5.0)
            except ERRORS:
                await self._drop_connection()

    async def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._partitions.clear()
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.terminate()

    def _answer(self, batch: Batch) -> None:
        assert batch.answers is not None
        for future, receipt, error in batch.answers:
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                assert receipt is not None
                future.set_result(receipt)
        if batch.topics:
            self._hint(batch.topics)

    def _fail(self, commits: Sequence[PostgresCommit], error: KeelboltError) -> None:
        self._meter.failed(error, len(commits))
        for commit in commits:
            if not commit.future.done():
                commit.future.set_exception(error)


def _numbers(locks: Sequence[int]) -> str:
    return f"unnest('{{{','.join(map(str, locks))}}}'::bigint[]) AS n"


# ---------------------------------------------------------------------------------------------------------------- locks


STRIPES = 0x1FF


@lru_cache(maxsize=4096)
def partition_lock(schema: str, partition: str) -> int:
    """Return a number for a partition; its lowest nine bits are zero."""
    raw = int.from_bytes(blake2b(f"{schema}\0{partition}".encode(), digest_size=8).digest(), signed=True)
    return raw & ~STRIPES


def catalog_lock(schema: str) -> int:
    """Return the catalog's lock: shared by all batches, exclusive for a declaration."""
    return partition_lock(schema, "\0catalog")


def worker_lock(schema: str, worker: str) -> int:
    """Return the lock of a worker's lease: shared by claims of this worker, exclusive for the removal of the lease.

    Without it, a claim could rely on a lease that is being removed. Its item would be held without a lease, and no
    other worker could take it over. It is taken before all other locks and rows.
    """
    return partition_lock(schema, f"\0worker/{worker}")


def worker_locks_of(schema: str, commits: Iterable[tuple[str, Iterable[Operation]]]) -> list[int]:
    """Return the locks of the workers that claim items by these commits, in the order in which they are taken."""
    return sorted(
        {
            worker_lock(schema, operation.worker)
            for _, operations in commits
            for operation in operations
            if type(operation) is Enqueue and operation.worker is not None
        }
    )


def locks_of(schema: str, commits: Iterable[tuple[str, Iterable[Operation]]]) -> list[int]:
    """Return the locks of these commits in the order in which they are taken."""
    numbers = set()
    for partition, operations in commits:
        base = partition_lock(schema, partition)
        for name in {address(operation)[1] for operation in operations}:
            numbers.add(base | crc32(name.encode()) & STRIPES)
    return sorted(numbers)
