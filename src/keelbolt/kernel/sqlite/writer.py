"""The writer thread: commits everything that is queued in one transaction.

There is no timer: while one batch is written, the next one queues. Commits are decided one after another, so a refused
one does not affect the others. Callers get their results after the commit, all in one wake-up of the event loop.

COMMIT syncs the write-ahead log to disk, because `connection.prepare` sets ``synchronous = FULL``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from keelbolt.errors import (
    CommitInDoubt,
    KeelboltError,
    StorageBroken,
    StorageBusy,
    StorageFull,
    StorageUnavailable,
)
from keelbolt.kernel.commits import Operation, Receipt, relieves
from keelbolt.kernel.hints import Topic
from keelbolt.kernel.judge import judge
from keelbolt.kernel.sqlite.connection import WAL_PAGES, SqliteConnection, translate
from keelbolt.kernel.sqlite.files import Reserve, WriteLock
from keelbolt.kernel.sqlite.rows import SqliteRows
from keelbolt.observability.metrics import Meter

logger = logging.getLogger("keelbolt.kernel")

BATCH_COMMITS = 512
LOCK_SECONDS = 30.0  # how long callers wait while another process holds the lock
ROOM_SECONDS = 1.0  # interval between checks of a full disk
IDLE_SECONDS = 0.05  # time without a commit after which free pages are returned to the disk, step by step
STEP_PAGES = 64
KEPT_PAGES = 256  # 1 MiB is kept for the next commits

Probe = Callable[[str], None]


@dataclass(slots=True)
class SqliteCommit:
    """A queued commit of a caller."""

    partition: str
    operations: tuple[Operation, ...]
    future: asyncio.Future[Receipt]

    def relieves(self) -> bool:
        return relieves(self.operations)


@dataclass(slots=True)
class Job:
    """Another operation in the writer's transaction: a claim, a sweep, a chunk of a blob."""

    run: Callable[[WriteJob], Any]
    future: asyncio.Future[Any]
    relief: bool = False

    def relieves(self) -> bool:
        return self.relief


@dataclass(slots=True)
class WriteJob:
    """The arguments of a job."""

    connection: SqliteConnection
    book: SqliteRows
    now: int  # the engine's time
    topics: set[Topic]


Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]


def settle(answers: Sequence[Answer]) -> None:
    """Give each caller its result or error, unless the caller was canceled."""
    for future, result, error in answers:
        if future.cancelled():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class SqliteWriter:
    def __init__(
        self,
        *,
        book: SqliteRows,
        lock: WriteLock | None,
        reserve: Reserve | None,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], int],
        wall: Callable[[], int],
        hint: Callable[[Sequence[Topic]], None],
        woken: Callable[[Sequence[Topic]], None],
        probe: Probe,
        batch: int,
        meter: Meter,
    ) -> None:
        self._book = book
        self._lock = lock
        self._reserve = reserve
        self._loop = loop
        self._now = now
        self._wall = wall
        self._hint = hint
        self._woken = woken
        self._probe = probe
        self._batch = batch
        self._meter = meter
        self._queue: SimpleQueue[SqliteCommit | Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name="keelbolt-writer")
        self._looked_at = 0.0
        self._rows_due = WAL_PAGES
        self._locked = False  # whether this thread holds the lock
        self._untidy = True  # the file may have free pages
        self._cut = False  # free pages were removed since the last checkpoint
        self._mutex = threading.Lock()
        self._waiting: tuple[float, list[SqliteCommit | Job]] | None = None  # start of the wait for the lock, and batch
        self.full = False
        self.broken: StorageBroken | None = None

    def start(self) -> None:
        self._thread.start()

    def commit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._queue.put(SqliteCommit(partition, operations, future))
        return future

    def run(self, job: Callable[[WriteJob], Any], *, relief: bool = False) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put(Job(job, future, relief))
        return future

    def stop(self, seconds: float | None = None) -> bool:
        """Finish the queue and end the thread. Safe to call from any thread, and more than once.

        Return whether the thread has ended. A thread that still waits for the lock after its callers got StorageBusy is
        left running: the lock and the connection still belong to it.
        """
        self._queue.put(None)
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while self._thread.is_alive() and time.monotonic() < deadline and not self._gave_up():
            self._thread.join(0.1)
        return not self._thread.is_alive()

    def _gave_up(self) -> bool:
        with self._mutex:
            return self._waiting is not None and not self._waiting[1]

    # ------------------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        while True:
            batch, last = self._take()
            if batch:
                self._probe("taken")
                self._serve(batch)
            if last:
                return

    def _take(self) -> tuple[list[SqliteCommit | Job], bool]:
        get = self._queue.get
        first = self._next()
        if first is None:
            return [], True
        batch: list[SqliteCommit | Job] = [first]
        for _ in range(min(self._queue.qsize(), self._batch - 1)):
            item = get()
            if item is None:
                return batch, True
            batch.append(item)
        return batch, False

    def _next(self) -> SqliteCommit | Job | None:
        """Return the next item. While there is none, return free pages to the disk."""
        while self._untidy and self.broken is None:
            try:
                return self._queue.get(timeout=IDLE_SECONDS)
            except Empty:
                self._tidy()
        return self._queue.get()

    def _serve(self, batch: list[SqliteCommit | Job]) -> None:
        if self.broken is not None:
            self._fail(batch, StorageBroken())
            return
        if self.full or (self._reserve is not None and self._reserve.given_back()):
            self.full = True
            batch = self._only_relief(batch)
            if not batch:
                return
        began = time.monotonic()
        try:
            answers, topics = self._transact(batch)
        except StorageFull:
            self._filled(batch)
        except StorageBroken as error:
            self.broken = error
            logger.critical("the storage is broken: %s", error)
            self._fail(batch, error)
        except KeelboltError as error:
            self._fail(batch, error)
        except BaseException as error:
            logger.exception("the writer failed")
            self._fail(batch, error)
        else:
            self._meter.batch(len(batch), time.monotonic() - began)
            try:
                self._probe("committed")
                if topics:
                    self._hint(topics)
                self._answer(answers, topics)
                self._probe("acknowledged")
                if self._checkpoint_due():
                    self._checkpoint()
            finally:
                if self._locked:
                    self._unlock()

    def _checkpoint_due(self) -> bool:
        return self._book.rows >= self._rows_due

    def _checkpoint(self) -> bool:
        """Move the write-ahead log into the file, while callers that just got their results prepare the next commit.

        The batch's lock is still held. SQLite before 3.51.3 can damage a database when one connection runs a checkpoint
        while another one commits: https://sqlite.org/wal.html#walresetbug. Return whether the whole log was moved.
        """
        rows, self._book.rows = self._book.rows, 0
        try:
            _, pages, moved = self._book.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            self._check_disk(error)
            return True
        # The number of rows per page varies, so it is measured. While another program runs a checkpoint, pages is -1.
        self._rows_due = min(max(rows * WAL_PAGES // max(pages, 1), WAL_PAGES // 10), WAL_PAGES * 10)
        return bool(pages == moved)

    def _check_disk(self, error: sqlite3.Error) -> None:
        translated = translate(error)
        if isinstance(translated, StorageBroken):  # a retry can't recover data that the disk has lost
            self.broken = translated
            logger.critical("the storage is broken: %s", translated)

    def _tidy(self) -> None:
        """Remove some free pages from the file. After the last ones, a checkpoint makes the file smaller."""
        connection = self._book.connection
        try:
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            if free <= KEPT_PAGES and not self._cut:
                self._untidy = False
                return
            if self._lock is not None:
                self._lock.acquire(seconds=0)
                self._locked = True
            if free > KEPT_PAGES:
                self._cut_off(min(free - KEPT_PAGES, STEP_PAGES))
                if self._checkpoint_due():
                    self._checkpoint()
            elif self._checkpoint():
                self._cut = False
        except StorageBusy:
            pass  # another process writes; retried when this one is idle again
        except sqlite3.Error as error:  # for example a full disk; retried after the next commit
            self._check_disk(error)
            self._untidy = False
        finally:
            if self._locked:
                self._unlock()

    def _cut_off(self, pages: int) -> None:
        connection = self._book.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            for _ in range(pages):
                connection.execute("PRAGMA incremental_vacuum(1)")  # sqlite3 ends a statement after its first page
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(Exception):
                connection.execute("ROLLBACK")
            raise
        self._cut = True
        self._book.rows += pages

    def _transact(self, batch: list[SqliteCommit | Job]) -> tuple[list[Answer], tuple[Topic, ...]]:
        """Commit the batch. The lock stays held after a success that makes a checkpoint due."""
        if self._lock is not None:
            self._acquire(self._lock, batch)
            self._locked = True
        committing = done = False
        try:
            self._probe("locked")
            connection = self._book.connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._probe("begun")
                answers, topics = self._judge(batch)
                committing = True
                connection.execute("COMMIT")
                committing = False
                done = self._untidy = True
            except BaseException:
                self._book.forget()
                with contextlib.suppress(Exception):  # SQLite may already have rolled back
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            translated = translate(error)
            if isinstance(translated, StorageBroken) and committing:
                raise CommitInDoubt from error
            raise translated from error
        finally:
            if self._locked and not (done and self._checkpoint_due()):
                self._unlock(sound=not committing)
        self._book.end()
        return answers, topics

    def _unlock(self, *, sound: bool = True) -> None:
        assert self._lock is not None
        self._locked = False
        self._lock.release(sound=sound)

    def _acquire(self, lock: WriteLock, batch: list[SqliteCommit | Job]) -> None:
        with self._mutex:
            self._waiting = (time.monotonic(), batch)
        lock.acquire()
        with self._mutex:
            given_up = self._waiting is not None and not self._waiting[1]
            self._waiting = None
        if given_up:
            with contextlib.suppress(OSError):  # closed meanwhile
                lock.release()
            raise StorageBusy

    def give_up_waiting(self) -> None:
        """Fail all pending items with StorageBusy if the thread has waited for the lock for LOCK_SECONDS.

        The lock holder may have been stopped. The safety poll calls this regularly, in the event loop.
        """
        with self._mutex:
            if self._waiting is None or time.monotonic() - self._waiting[0] < LOCK_SECONDS:
                return
            since, batch = self._waiting
            self._waiting = (since, [])
            queued = self._drain()
            abandoned = [*batch, *(item for item in queued if item is not None)]
            batch.clear()
            if None in queued:  # keep the request to stop
                self._queue.put(None)
        self._deliver([(item.future, None, StorageBusy()) for item in abandoned], ())

    def _drain(self) -> list[SqliteCommit | Job | None]:
        return [self._queue.get() for _ in range(self._queue.qsize())]

    def _judge(self, batch: list[SqliteCommit | Job]) -> tuple[list[Answer], tuple[Topic, ...]]:
        book = self._book
        book.begin()
        now, at = self._now(), self._wall()
        answers: list[Answer] = []
        if book.mark is not None and (refusal := book.mark.refusal(now)) is not None:
            answers = [
                (item.future, None, refusal) for item in batch if type(item) is SqliteCommit or not item.relieves()
            ]
            batch = [item for item in batch if type(item) is Job and item.relieves()]
        commits = [(item.partition, item.operations) for item in batch if type(item) is SqliteCommit]
        book.load(commits)
        partitions: set[str] = set()
        topics: set[Topic] = set()
        ledger = book.ledger
        for item in batch:
            if type(item) is Job:
                topics |= ledger.topics
                book.save(partitions, now=now)
                answer = self._do(item, now, topics)
                answers.append(answer)
                if answer[2] is not None:  # a failed job discarded the ledger
                    book.load(commits)
                    ledger = book.ledger
                continue
            assert type(item) is SqliteCommit
            try:
                outcomes = judge(ledger, item.partition, item.operations, now=now, at=at)
            except KeelboltError as refusal:
                answers.append((item.future, None, refusal.with_traceback(None)))  # it refers to the future
            else:
                partitions.add(item.partition)
                answers.append((item.future, Receipt(item.operations, outcomes), None))
        topics |= ledger.topics
        self._probe("judged")
        book.save(partitions, now=now)
        self._probe("saved")
        return answers, tuple(topics)

    def _do(self, job: Job, now: int, topics: set[Topic]) -> Answer:
        """Run a job in the batch's transaction. An error of the job affects only its own caller."""
        connection = self._book.connection
        connection.execute("SAVEPOINT job")
        try:
            result = job.run(WriteJob(connection, self._book, now, topics))
            self._book.save((), now=now)
        except (sqlite3.Error, StorageUnavailable):
            raise
        except Exception as error:  # noqa: BLE001
            connection.execute("ROLLBACK TO job")
            self._book.forget()
            self._book.begin()
            return job.future, None, error
        connection.execute("RELEASE job")
        return job.future, result, None

    # ------------------------------------------------------------------------------------------------ a full disk

    def _only_relief(self, batch: list[SqliteCommit | Job]) -> list[SqliteCommit | Job]:
        """Return the items that free space and refuse the others, unless there is space again."""
        if time.monotonic() - self._looked_at >= ROOM_SECONDS:
            self._looked_at = time.monotonic()
            if self._reserve is not None and self._reserve.room():
                self.full = False
                logger.warning("the disk has free space again: writes resume")
                return batch
        self._fail([item for item in batch if not item.relieves()], StorageFull())
        return [item for item in batch if item.relieves()]

    def _filled(self, batch: list[SqliteCommit | Job]) -> None:
        """Handle a full disk: free the reserve, and serve only the items that free space."""
        if self.full or self._reserve is None:
            self._fail(batch, StorageFull())
            return
        self.full = True
        self._looked_at = time.monotonic()
        self._reserve.release()
        logger.error("the disk is full: only deletes and releases work, in the reserved space")
        relief = self._only_relief(batch)
        if relief:
            self._serve(relief)

    # ---------------------------------------------------------------------------------------------------- results

    def _fail(self, batch: Sequence[SqliteCommit | Job], error: BaseException) -> None:
        self._meter.failed(error, len(batch))
        self._answer([(item.future, None, error) for item in batch], ())

    def _answer(self, answers: Sequence[Answer], topics: Sequence[Topic]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the commits are valid, but no caller waits
            self._loop.call_soon_threadsafe(self._deliver, answers, topics)

    def _deliver(self, answers: Sequence[Answer], topics: Sequence[Topic]) -> None:
        settle(answers)
        if topics:
            self._woken(topics)
