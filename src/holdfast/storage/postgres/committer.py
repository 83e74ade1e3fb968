"""The committer: takes whatever has queued and commits it in one transaction.

While one batch is on its way the next one gathers. When the connection breaks, the same batch is tried again under the
same id on a new one: if the first attempt was committed after all, its row in the table of batches says so, and the
callers get the answers that were worked out then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from holdfast.errors import CommitInDoubt, HoldfastError, StorageUnavailable, StorageUnreachable
from holdfast.storage.catalog import Catalog
from holdfast.storage.clock import Clock
from holdfast.storage.commits import Operation, Receipt
from holdfast.storage.hints import Topic
from holdfast.storage.ids import new_id
from holdfast.storage.judge import judge
from holdfast.storage.postgres.book import Book
from holdfast.storage.postgres.catalog import load_catalog
from holdfast.storage.postgres.connection import (
    ERRORS,
    LOCK_SECONDS,
    LOST,
    STATEMENT_SECONDS,
    Connection,
    close_quietly,
    translate,
)
from holdfast.storage.postgres.locks import catalog_lock, locks_of

logger = logging.getLogger("holdfast.storage")

BATCH_COMMITS = 256
BATCH_OPERATIONS = 4000  # a batch has ten thousand ids, and a commit at most a thousand operations
OUTAGE_SECONDS = 30.0  # how long callers wait for a server that went away
SHARDS = 16

Answer = tuple["asyncio.Future[Receipt]", Receipt | None, HoldfastError | None]


@dataclass(slots=True)
class Commit:
    """A caller's commit on its way."""

    partition: str
    operations: tuple[Operation, ...]
    future: asyncio.Future[Receipt]


@dataclass(slots=True)
class Batch:
    """Commits that go together; ``answers`` is what was worked out when COMMIT was sent."""

    id: UUID
    commits: list[Commit]
    answers: list[Answer] | None = None
    topics: tuple[Topic, ...] = ()


class Committer:
    def __init__(
        self,
        *,
        connect: Callable[[], Awaitable[Connection]],
        sql: dict[str, str],
        schema: str,
        settings: dict[str, str],
        clock: Clock,
        hint: Callable[[Sequence[Topic]], None],
        batch: int = BATCH_COMMITS,
    ) -> None:
        self._connect = connect
        self._sql = sql
        self._schema = schema
        self._clock = clock
        self._hint = hint
        self._batch = batch
        self._shard = random.randrange(SHARDS)  # noqa: S311 - a shard is no secret
        self._connection: Connection | None = None
        self._partitions: set[str] = set()
        self._queue: deque[Commit] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False
        self.catalog = Catalog()
        self._begin = "".join(["BEGIN; ", *(f"SET LOCAL {name} = {value}; " for name, value in settings.items())])
        self._task = asyncio.get_running_loop().create_task(self._run(), name="holdfast-committer")

    def commit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._queue.append(Commit(partition, operations, future))
        self._idle.clear()
        self._wake.set()
        return future

    async def flush(self) -> None:
        """Return when everything that has queued is answered."""
        waiting = [commit.future for commit in self._queue]
        await self._idle.wait() if not waiting else await asyncio.wait([waiting[-1]])

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
                await self._serve(Batch(UUID(new_id()), self._take()))
            self._idle.set()
            if self._closing:
                return

    def _take(self) -> list[Commit]:
        commits: list[Commit] = []
        operations = 0
        while self._queue and len(commits) < self._batch and operations < BATCH_OPERATIONS:
            commits.append(self._queue.popleft())
            operations += len(commits[-1].operations)
        return commits

    async def _serve(self, batch: Batch) -> None:
        """Commit a batch, however often the connection breaks; give up when the server stays away."""
        deadline = time.monotonic() + OUTAGE_SECONDS
        pause = 0.02
        while True:
            try:
                async with asyncio.timeout(STATEMENT_SECONDS + LOCK_SECONDS):
                    await self._transact(batch)
            except LOST as error:
                await self._drop_connection()
                if time.monotonic() + pause > deadline or self._is_final(error):
                    logger.warning("the storage server does not answer: %s", type(error).__name__)
                    self._fail(batch, CommitInDoubt() if batch.answers is not None else translate(error))
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
            except ERRORS as error:
                await self._roll_back()
                self._fail(batch, translate(error))
                return
            except HoldfastError as error:
                await self._roll_back()
                self._fail(batch, error)
                return
            except Exception as error:
                logger.exception("the committer failed")
                await self._drop_connection()
                self._fail(batch, StorageUnavailable(f"the committer failed: {type(error).__name__}"))
                return
            else:
                self._answer(batch)
                return

    @staticmethod
    def _is_final(error: BaseException) -> bool:
        """A refusal by the server, rather than its silence: waiting will not help."""
        return not isinstance(translate(error), StorageUnreachable)

    async def _transact(self, batch: Batch) -> None:
        if self._connection is None:
            self._connection = await self._connect()
        connection = self._connection
        commits = [(commit.partition, commit.operations) for commit in batch.commits]
        locks = ",".join(map(str, locks_of(self._schema, commits)))
        await connection.execute(
            f"{self._begin}SELECT pg_advisory_xact_lock_shared({catalog_lock(self._schema)}) "
            f"UNION ALL SELECT pg_advisory_xact_lock(n) FROM unnest('{{{locks}}}'::bigint[]) AS n"
        )
        book = Book(connection, self._sql, shard=self._shard)
        begun = await book.load(batch.id, commits)
        if begun is None:  # an earlier attempt was committed
            await connection.execute("ROLLBACK")
            return
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
        await connection.execute("COMMIT" if partitions else "ROLLBACK")
        self._partitions |= new

    def _judge(self, batch: Batch, book: Book, now: int) -> tuple[list[Answer], set[str]]:
        at = self._clock.wall()
        answers: list[Answer] = []
        partitions: set[str] = set()
        for commit in batch.commits:
            try:
                outcomes = judge(book.ledger, commit.partition, commit.operations, now=now, at=at)
            except HoldfastError as refusal:
                answers.append((commit.future, None, refusal))
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

    def _fail(self, batch: Batch, error: HoldfastError) -> None:
        for commit in batch.commits:
            if not commit.future.done():
                commit.future.set_exception(error)
