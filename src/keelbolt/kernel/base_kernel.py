"""Code shared by all engines: guards, input checks, cursors, tails and blobs in chunks.

An engine subclasses `BaseKernel` and implements the abstract methods of `EngineMethods`.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

from keelbolt.errors import (
    BadCursor,
    BlobNotFound,
    Forked,
    InvalidRequest,
    InvalidValue,
    KeelboltError,
    LogTrimmed,
    StorageClosed,
    WrongLoop,
)
from keelbolt.kernel.blobs import STAGED_SECONDS, Blob, BlobReader, BlobSource, StagedReader, stage
from keelbolt.kernel.clock import Clock
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import (
    LEASE_SECONDS,
    Durability,
    Health,
    Problem,
    Stats,
    Swept,
    WorkCounts,
)
from keelbolt.kernel.declarations import CheckedCollection, Declarations
from keelbolt.kernel.engine_methods import EngineMethods
from keelbolt.kernel.hints import Board, LogTopic, QueueTopic, Topic, Watch
from keelbolt.kernel.keys import PageCursor, encode, read_cursor, write_cursor
from keelbolt.kernel.logs import PAGE_BYTES, Entry, LogPage, LogState
from keelbolt.kernel.records import Collection, Count, Page, Query, Record
from keelbolt.kernel.requests import (
    check_count,
    check_family,
    check_key,
    check_partition,
    check_query,
    check_seconds,
    check_worker,
    checked_operations,
)
from keelbolt.kernel.transfer.ports import Transfer
from keelbolt.kernel.work import Claim, WorkItem, WorkPage, WorkState
from keelbolt.observability.metrics import Meter

MAX_PAGE = 10_000
TAIL_POLL_SECONDS = 5.0  # a second fallback behind the engine's own safety poll

_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class BaseKernel(EngineMethods):
    """Base class of the engines."""

    def __init__(
        self, *, durability: Durability = "durable", declare: Iterable[Collection] = (), clock: Clock | None = None
    ) -> None:
        if durability not in ("durable", "relaxed"):
            raise InvalidValue(f"durability is 'durable' or 'relaxed', not {durability!r}")
        self.durability: Durability = durability
        self.clock = clock or Clock()
        self.declared = Declarations()
        self.board = Board()
        self.meter: Meter = Meter()
        self._to_declare = _families(declare)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = False
        self._forks = _forks

    # -------------------------------------------------------------------------------------------------- lifecycle

    def _guard(self) -> asyncio.AbstractEventLoop:
        """Return the kernel's loop. Raise if closed, or if called in another loop or in a forked child."""
        loop = self._loop
        if self._forks != _forks:
            raise Forked
        if loop is None:
            raise StorageClosed
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # called from a thread without a loop
            raise WrongLoop from None
        if running is not loop:
            raise WrongLoop
        return loop

    def __del__(self) -> None:
        if getattr(self, "_loop", None) is not None and self._forks == _forks:
            warnings.warn(
                f"a {self.engine} storage was never closed; use `async with open_storage(url)`",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    async def open(self) -> None:
        if self._loop is not None or self._opening:
            raise InvalidRequest("this storage is open already; use it, or open another one")
        self._forks = _forks
        self._opening = True
        try:
            await self._open()
        finally:
            self._opening = False
        self._loop = asyncio.get_running_loop()
        try:
            await self.declare(*self._to_declare)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._loop is None:
            return
        self._guard()
        self._loop = None
        self.board.wake_all()
        await self._close()

    async def declare(self, *families: Collection) -> None:
        self._guard()
        for family in families:
            shape = CheckedCollection(family)
            known = self.declared.shapes.get(shape.name)
            if known is not None and known.dump() == shape.dump():
                continue
            await self._declare(shape)  # first, so that a declaration that can't be stored does not take effect
            self.declared.shapes[shape.name] = shape

    async def flush(self) -> None:
        self._guard()
        await self._flush()
        await asyncio.sleep(0)  # callers of the commits get their results first

    async def health(self) -> Health:
        try:
            self._guard()
            reads, writes, detail = await self._health()
        except KeelboltError as error:
            reads, writes, detail = False, False, str(error)
        return Health(self.engine, self.durability, reads, writes, detail)

    async def stats(self) -> Stats:
        self._guard()
        return await self._stats()

    async def check(self) -> AsyncIterator[Problem]:
        self._guard()
        async for problem in self._check():
            yield problem

    async def sweep(self, *, limit: int = 500) -> Swept:
        self._guard()
        check_count(limit, "limit", low=1, high=MAX_PAGE)
        return await self._sweep(limit)

    async def partitions(self, *, after: str = "", limit: int = 1000) -> Sequence[str]:
        self._guard()
        check_count(limit, "limit", low=1, high=MAX_PAGE)
        if type(after) is not str:
            raise InvalidValue(f"after must be the name of a partition, not {type(after).__name__}")
        if after:
            check_partition(after)
        return await self._partitions(after, limit)

    # ----------------------------------------------------------------------------------------------------- commit

    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        self._guard()
        check_partition(partition)
        return self._submit(partition, checked_operations(self.declared, operations))

    # ---------------------------------------------------------------------------------------------------- records

    async def get(self, partition: str, collection: str, key: str) -> Record | None:
        return (await self.get_many(partition, collection, (key,)))[0]

    async def get_many(self, partition: str, collection: str, keys: Iterable[str]) -> Sequence[Record | None]:
        self._guard()
        check_partition(partition)
        self.declared.shape(collection)
        if isinstance(keys, str) or not isinstance(keys, Iterable):
            raise InvalidValue(f"get_many takes a list of keys, not {type(keys).__name__}")
        keys = tuple(keys)
        for key in keys:
            check_key(key)
        return await self._get_many(partition, collection, keys)

    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        shape = self._checked_query(partition, query)
        check_count(limit, "limit", low=1, high=MAX_PAGE)
        index = shape.index_for(query)
        low, high = shape.bounds(index, partition, query)
        print_ = ("find", query.collection, query.newest_first, index, low.hex(), high.hex())
        started_at = self.clock.wall()
        if cursor is not None:
            place = read_cursor(cursor, *print_)
            low, high = self._bound(shape, index, low), self._bound(shape, index, high)
            if not low <= place.last < high:  # forged: it would leave the query's range and the partition
                raise BadCursor
            started_at = place.started_at
            if query.newest_first:
                high = place.last
            else:
                low = place.last + b"\0"  # the smallest bytes greater than it
        rows = await self._scan(partition, shape, index, low, high, newest_first=query.newest_first, limit=limit + 1)
        more = len(rows) > limit
        rows = rows[:limit]
        next_cursor = write_cursor(PageCursor(rows[-1][0], started_at), *print_) if more else None
        return Page(tuple([record for _, record in rows]), next_cursor, started_at)

    async def count(self, partition: str, query: Query, *, cap: int = 10_000) -> Count:
        shape = self._checked_query(partition, query)
        check_count(cap, "cap", low=1)
        counter = shape.counter_for(query)
        if counter is not None:
            values = (query.equal.get(name) for name in shape.counters[counter])
            return Count(await self._counter(partition, shape, counter, encode((partition, *values))), exact=True)
        index = shape.index_for(query)
        low, high = shape.bounds(index, partition, query)
        counted = await self._count(partition, shape, index, low, high, cap + 1)
        return Count(min(counted, cap), exact=counted <= cap)

    def _checked_query(self, partition: str, query: Query) -> CheckedCollection:
        self._guard()
        check_partition(partition)
        return check_query(self.declared, query)

    # ------------------------------------------------------------------------------------------------------- logs

    async def read_log(
        self,
        partition: str,
        log: str,
        stream: str,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = 500,
        max_bytes: int = PAGE_BYTES,
        backward: bool = False,
    ) -> LogPage:
        self._checked_stream(partition, log, stream)
        check_count(limit, "limit", low=1, high=MAX_PAGE)
        check_count(max_bytes, "max_bytes", low=1)
        if after is not None:
            check_count(after, "after")
        if before is not None:
            check_count(before, "before", low=1)
        page = await self._read_log(
            partition, log, stream, after or 0, before, limit=limit, max_bytes=max_bytes, backward=backward
        )
        if after is not None and after < page.floor:
            raise LogTrimmed(after=after, floor=page.floor, head=page.head)
        return page

    async def log_state(self, partition: str, log: str, stream: str) -> LogState:
        self._checked_stream(partition, log, stream)
        return await self._log_state(partition, log, stream)

    async def seq_of(self, partition: str, log: str, stream: str, dedupe: str) -> int | None:
        self._checked_stream(partition, log, stream)
        check_key(dedupe, "dedupe key")
        return await self._seq_of(partition, log, stream, dedupe)

    async def tail(self, partition: str, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        with self.watch(LogTopic(partition, log, stream)) as watch:
            while True:
                page = await self.read_log(partition, log, stream, after=after)
                for entry in page.entries:
                    yield entry
                if page.entries:
                    after = page.entries[-1].seq
                if not page.entries or page.entries[-1].seq >= page.head:
                    await watch.wait(TAIL_POLL_SECONDS)

    def _checked_stream(self, partition: str, log: str, stream: str) -> None:
        self._guard()
        check_partition(partition)
        check_family(log, "log")
        check_key(stream, "stream")

    # ------------------------------------------------------------------------------------------------------- work

    async def claim(
        self, queue: str, worker: str, *, limit: int = 1, lease_seconds: float = LEASE_SECONDS
    ) -> Sequence[Claim]:
        self._guard()
        check_family(queue, "queue")
        check_count(limit, "limit", low=1, high=MAX_PAGE)
        check_worker(worker, lease_seconds)
        return await self._claim(queue, worker, limit, lease_seconds)

    async def heartbeat(self, worker: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._guard()
        check_worker(worker, lease_seconds)
        await self._heartbeat(worker, lease_seconds)

    async def retire(self, worker: str) -> int:
        self._guard()
        check_partition(worker)
        return await self._retire(worker)

    async def work(self, partition: str, queue: str, key: str) -> WorkItem | None:
        self._guard()
        check_partition(partition)
        check_family(queue, "queue")
        check_key(key)
        return await self._work(partition, queue, key)

    async def list_work(
        self, partition: str, queue: str, *, state: WorkState, limit: int = 50, cursor: str | None = None
    ) -> WorkPage:
        self._guard()
        check_partition(partition)
        check_family(queue, "queue")
        check_count(limit, "limit", low=1, high=MAX_PAGE)
        if state not in ("waiting", "held", "dead"):
            raise InvalidValue(f"state is 'waiting', 'held' or 'dead', not {state!r}")
        print_ = ("work", partition, queue, state)
        after = _text(read_cursor(cursor, *print_).last) if cursor is not None else ""
        items = await self._list_work(partition, queue, state, after, limit + 1)
        next_cursor = None
        if len(items) > limit:
            items = items[:limit]
            next_cursor = write_cursor(PageCursor(items[-1].key.encode(), 0), *print_)
        return WorkPage(tuple(items), next_cursor)

    async def count_work(self, queues: Sequence[str]) -> WorkCounts:
        self._guard()
        for queue in queues:
            check_family(queue, "queue")
        return await self._count_work(tuple(dict.fromkeys(queues)))

    # ------------------------------------------------------------------------------------------------------ blobs

    async def stage_blob(self, partition: str, source: BlobSource, *, keep_seconds: float = STAGED_SECONDS) -> Blob:
        self._guard()
        check_partition(partition)
        check_seconds(keep_seconds, "keep_seconds")
        return await stage(self, partition, source, keep_seconds)

    async def open_blob(self, partition: str, digest: str) -> BlobReader:
        self._guard()
        check_partition(partition)
        check_key(digest, "digest")
        found = await self._blob(partition, digest)
        if found is None:
            raise BlobNotFound(digest)
        upload, size = found
        return StagedReader(self, partition, upload, Blob(digest, size))

    # ---------------------------------------------------------------------------------------------- notifications

    def watch(self, topic: Topic, then: Callable[[], None] | None = None) -> Watch:
        self._guard()
        if not isinstance(topic, LogTopic | QueueTopic):
            raise InvalidValue(f"watch a LogTopic or a QueueTopic, not {type(topic).__name__}")
        return Watch(self.board, topic, then)

    # ----------------------------------------------------------------------------------------------------- copies

    def transfer(self) -> Transfer:
        """Return the access to the whole store for copies and backups. Raise NotTransferable if the engine has none."""
        self._guard()
        return self._transfer()


def _families(declare: Iterable[Collection]) -> tuple[Collection, ...]:
    if not isinstance(declare, Iterable):
        raise InvalidValue(f"declare takes a list of Collections, not a single {type(declare).__name__}")
    return tuple(declare)


def _text(place: bytes) -> str:
    try:
        return place.decode()
    except UnicodeDecodeError:
        raise BadCursor from None
