"""What every engine does the same way: guards, checked input, cursors, tails, blobs in chunks and write-behind.

An engine subclasses `Front` and fills in the methods whose names begin with an underscore; they are called with checked
arguments, in the right loop and process, while the storage is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

from keelbolt.errors import (
    BadCursor,
    BlobNotFound,
    Forked,
    InvalidRequest,
    InvalidValue,
    KeelboltError,
    LogTrimmed,
    NotDeclared,
    NotTransferable,
    StorageClosed,
    StorageCorrupt,
    WrongLoop,
)
from keelbolt.storage.blobs import STAGED_SECONDS, Blob, BlobReader, BlobSource
from keelbolt.storage.clock import Clock
from keelbolt.storage.commits import Operation, Receipt
from keelbolt.storage.contract import (
    LEASE_SECONDS,
    PAGE_BYTES,
    Durability,
    Family,
    Health,
    Problem,
    Stats,
    Swept,
)
from keelbolt.storage.cursors import Cursor, read_cursor, write_cursor
from keelbolt.storage.declared import Declared, Shape
from keelbolt.storage.hints import Board, LogTopic, QueueTopic, Topic, Watch
from keelbolt.storage.hooks import Hooks
from keelbolt.storage.keys import END, encode
from keelbolt.storage.logs import Append, Entry, LogPage, LogState
from keelbolt.storage.records import Collection, Count, Page, Put, Query, Record
from keelbolt.storage.requests import (
    check_count,
    check_family,
    check_key,
    check_partition,
    check_seconds,
    checked_operations,
)
from keelbolt.storage.staging import chunks_of
from keelbolt.storage.transfer.ports import Transfer
from keelbolt.storage.work import Claim, WorkItem, WorkPage, WorkState

logger = logging.getLogger("keelbolt.storage")

MAX_PAGE = 10_000
TAIL_POLL_SECONDS = 5.0  # a second net below the engine's own safety poll

_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class Front(Hooks):
    """The face of an engine."""

    engine: str

    def __init__(
        self, *, durability: Durability = "durable", declare: Iterable[Family] = (), clock: Clock | None = None
    ) -> None:
        if durability not in ("durable", "relaxed"):
            raise InvalidValue(f"durability is 'durable' or 'relaxed', not {durability!r}")
        self.durability: Durability = durability
        self.clock = clock or Clock()
        self.declared = Declared()
        self.board = Board()
        self._to_declare = _families(declare)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = False
        self._forks = _forks
        self._behind: dict[str, asyncio.Future[Receipt]] = {}
        self._behind_pending = 0
        self._behind_failed = 0

    # -------------------------------------------------------------------------------------------------- lifecycle

    def _guard(self) -> asyncio.AbstractEventLoop:
        """Refuse use while closed, in another loop, or in a forked child."""
        loop = self._loop
        if self._forks != _forks:
            raise Forked
        if loop is None:
            raise StorageClosed
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # called from a plain thread
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

    async def declare(self, *families: Family) -> None:
        self._guard()
        for family in families:
            if isinstance(family, Collection):  # first where it is kept: what could not be kept is not declared
                await self._declare(Shape(family))
            self.declared.add(family)

    async def flush(self) -> None:
        self._guard()
        await self._flush()
        await asyncio.sleep(0)  # let what follows the answers happen too

    async def health(self) -> Health:
        try:
            self._guard()
            reads, writes, detail = await self._health()
        except KeelboltError as error:
            reads, writes, detail = False, False, str(error)
        return Health(self.engine, self.durability, reads, writes, detail, self._behind_pending, self._behind_failed)

    async def stats(self) -> Stats:
        self._guard()
        await self._caught_up()
        return await self._stats()

    async def check(self) -> AsyncIterator[Problem]:
        self._guard()
        await self._caught_up()
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
        await self._caught_up()
        return await self._partitions(after, limit)

    # ----------------------------------------------------------------------------------------------------- commit

    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        self._guard()
        check_partition(partition)
        return self._submit(partition, checked_operations(self.declared, operations))

    def commit_later(self, partition: str, *operations: Operation) -> None:
        self._guard()
        check_partition(partition)
        families = {self._family_behind(operation) for operation in operations}
        future = self._submit(partition, checked_operations(self.declared, operations))
        self._behind_pending += 1
        future.add_done_callback(self._behind_done)
        for family in families:
            self._behind[family] = future

    def _family_behind(self, operation: Operation) -> str:
        match operation:
            case Put():
                family = f"collection:{operation.collection}"
            case Append():
                family = f"log:{operation.log}"
            case _:
                raise InvalidRequest("commit_later takes only Put and Append, which nothing can refuse")
        if family not in self.declared.write_behind:
            raise NotDeclared(f"{family} is not declared with write_behind=True")
        return family

    def _behind_done(self, future: asyncio.Future[Receipt]) -> None:
        self._behind_pending -= 1
        if not future.cancelled() and (error := future.exception()) is not None:
            self._behind_failed += 1
            logger.error("a write-behind commit was lost: %s", error)

    async def _caught_up(self, *families: str) -> None:
        """Wait for what was written behind to these families (none given: to all of them)."""
        for family in families or tuple(self._behind):
            future = self._behind.get(family)
            if future is not None:
                if not future.done():
                    await asyncio.wait([future])
                if self._behind.get(family) is future:
                    del self._behind[family]

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
        if self._behind:
            await self._caught_up(f"collection:{collection}")
        return await self._get_many(partition, collection, keys)

    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        shape = self._checked_query(partition, query)
        check_count(limit, "limit", low=1, high=MAX_PAGE)
        index = shape.index_for(query)
        low, high = _bounds(shape, index, partition, query)
        print_ = ("find", query.collection, query.newest_first, index, low.hex(), high.hex())
        started_at = self.clock.wall()
        if cursor is not None:
            place = read_cursor(cursor, *print_)
            low, high = self._bound(shape, index, low), self._bound(shape, index, high)
            if not low <= place.last < high:  # forged: it would lead out of the query, and out of the partition
                raise BadCursor
            started_at = place.started_at
            if query.newest_first:
                high = place.last
            else:
                low = place.last + b"\0"  # the least bytes greater than it
        if self._behind:
            await self._caught_up(f"collection:{query.collection}")
        rows = await self._scan(partition, shape, index, low, high, newest_first=query.newest_first, limit=limit + 1)
        more = len(rows) > limit
        rows = rows[:limit]
        next_cursor = write_cursor(Cursor(rows[-1][0], started_at), *print_) if more else None
        return Page(tuple([record for _, record in rows]), next_cursor, started_at)

    async def count(self, partition: str, query: Query, *, cap: int = 10_000) -> Count:
        shape = self._checked_query(partition, query)
        check_count(cap, "cap", low=1)
        if self._behind:
            await self._caught_up(f"collection:{query.collection}")
        counter = shape.counter_for(query)
        if counter is not None:
            values = (query.equal.get(name) for name in shape.counters[counter])
            return Count(await self._counter(partition, shape, counter, encode((partition, *values))), exact=True)
        index = shape.index_for(query)
        low, high = _bounds(shape, index, partition, query)
        counted = await self._count(partition, shape, index, low, high, cap + 1)
        return Count(min(counted, cap), exact=counted <= cap)

    def _checked_query(self, partition: str, query: Query) -> Shape:
        self._guard()
        check_partition(partition)
        if not isinstance(query, Query) or not isinstance(query.equal, Mapping):
            raise InvalidValue("find and count take a Query, whose equal is a mapping of fields to values")
        shape = self.declared.shape(query.collection)
        for name, value in query.equal.items():
            shape.check_value(name, value)
        for bound in (query.since, query.until):
            if bound is not None:
                if query.order is None:
                    check_key(bound)  # type: ignore[arg-type]
                else:
                    shape.check_value(query.order, bound)
        return shape

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
        if self._behind:
            await self._caught_up(f"log:{log}")
        page = await self._read_log(
            partition, log, stream, after or 0, before, limit=limit, max_bytes=max_bytes, backward=backward
        )
        if after is not None and after < page.floor:
            raise LogTrimmed(after=after, floor=page.floor, head=page.head)
        return page

    async def log_state(self, partition: str, log: str, stream: str) -> LogState:
        self._checked_stream(partition, log, stream)
        if self._behind:
            await self._caught_up(f"log:{log}")
        return await self._log_state(partition, log, stream)

    async def seq_of(self, partition: str, log: str, stream: str, dedupe: str) -> int | None:
        self._checked_stream(partition, log, stream)
        check_key(dedupe, "dedupe key")
        if self._behind:
            await self._caught_up(f"log:{log}")
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
        _check_worker(worker, lease_seconds)
        return await self._claim(queue, worker, limit, lease_seconds)

    async def heartbeat(self, worker: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._guard()
        _check_worker(worker, lease_seconds)
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
            next_cursor = write_cursor(Cursor(items[-1].key.encode(), 0), *print_)
        return WorkPage(tuple(items), next_cursor)

    # ------------------------------------------------------------------------------------------------------ blobs

    async def stage_blob(self, partition: str, source: BlobSource, *, keep_seconds: float = STAGED_SECONDS) -> Blob:
        self._guard()
        check_partition(partition)
        check_seconds(keep_seconds, "keep_seconds")
        upload = await self._stage(partition, keep_seconds)
        try:
            hasher = hashlib.sha256()
            size = number = 0
            async for chunk in chunks_of(source):
                hasher.update(chunk)
                await self._stage_chunk(partition, upload, number, chunk, hashlib.sha256(chunk).digest())
                size += len(chunk)
                number += 1
            blob = Blob(hasher.hexdigest(), size)
            await self._stage_done(partition, upload, blob, keep_seconds)
        except BaseException:
            with contextlib.suppress(KeelboltError):  # a sweep removes what this can't
                await self._stage_undo(partition, upload)
            raise
        return blob

    async def open_blob(self, partition: str, digest: str) -> BlobReader:
        self._guard()
        check_partition(partition)
        check_key(digest, "digest")
        found = await self._blob(partition, digest)
        if found is None:
            raise BlobNotFound(digest)
        upload, size = found
        return _Reader(self, partition, upload, Blob(digest, size))

    # ------------------------------------------------------------------------------------------------------ hints

    def watch(self, topic: Topic, then: Callable[[], None] | None = None) -> Watch:
        self._guard()
        if not isinstance(topic, LogTopic | QueueTopic):
            raise InvalidValue(f"watch a LogTopic or a QueueTopic, not {type(topic).__name__}")
        return Watch(self.board, topic, then)

    # ----------------------------------------------------------------------------------------------------- copies

    def transfer(self) -> Transfer:
        """The whole store, for copies and backups. An engine that can't be copied leaves `_transfer` alone."""
        self._guard()
        return self._transfer()

    async def restore_native(self, file: Path, tell: Callable[[int, int], None]) -> bool:  # noqa: ARG002
        """Before it is opened: become what the engine's own kind of backup holds. Answers whether there is one."""
        return False

    def _transfer(self) -> Transfer:
        raise NotTransferable(f"the engine {self.engine!r} can't be copied: it offers no way to read a whole store")


class _Reader(BlobReader):
    def __init__(self, front: Front, partition: str, upload: int, blob: Blob) -> None:
        super().__init__(blob)
        self._front = front
        self._partition = partition
        self._upload = upload

    async def chunk(self, number: int) -> bytes:
        self._front._guard()  # noqa: SLF001
        found = await self._front._blob_chunk(self._partition, self._upload, number)  # noqa: SLF001
        if found is None and await self._front._blob(self._partition, self.blob.digest) is None:  # noqa: SLF001
            raise BlobNotFound(self.blob.digest)
        data, digest = found or (b"", b"")
        if hashlib.sha256(data).digest() != digest:
            raise StorageCorrupt(f"blob {self.blob.digest}: chunk {number} is damaged; restore it from a backup")
        return data


def _families(declare: Iterable[Family]) -> tuple[Family, ...]:
    if not isinstance(declare, Iterable):
        raise InvalidValue(f"declare takes a list of Collections and Logs, not a single {type(declare).__name__}")
    return tuple(declare)


def _check_worker(worker: str, lease_seconds: float) -> None:
    check_partition(worker)
    check_seconds(lease_seconds, "lease_seconds", positive=True)


def _text(place: bytes) -> str:
    try:
        return place.decode()
    except UnicodeDecodeError:
        raise BadCursor from None


def _bounds(shape: Shape, index: int, partition: str, query: Query) -> tuple[bytes, bytes]:
    equal = shape.indexes[index].equal
    prefix = encode((partition, *(query.equal.get(name) for name in equal)))
    low = prefix if query.since is None else prefix + encode((query.since,))
    high = prefix + END if query.until is None else prefix + encode((query.until,))
    return low, high
