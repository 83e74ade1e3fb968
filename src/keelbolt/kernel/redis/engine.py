"""The Redis and Valkey engine: connects the servers, the catalog, the queues and the notifications to the contract."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from keelbolt.errors import InvalidValue, SchemaMismatch, StorageCorrupt, StorageError
from keelbolt.kernel.base_kernel import BaseKernel
from keelbolt.kernel.blobs import Blob
from keelbolt.kernel.clock import Clock
from keelbolt.kernel.commits import Operation, Receipt, relieves
from keelbolt.kernel.contract import Durability, Problem, Stats, Swept, WorkCounts
from keelbolt.kernel.declarations import CheckedCollection
from keelbolt.kernel.hints import Topic
from keelbolt.kernel.ledger import WorkRow, work_item, work_state
from keelbolt.kernel.logs import Entry, LogPage, LogState
from keelbolt.kernel.records import Collection, Record
from keelbolt.kernel.redis import inspect
from keelbolt.kernel.redis.connection import RedisAddress
from keelbolt.kernel.redis.hints import RedisHints
from keelbolt.kernel.redis.layout import Layout, partition_entry
from keelbolt.kernel.redis.operations import (
    RECORD_WRITES,
    came_back,
    entry_checksum,
    micros,
    outcomes_of,
    record_of,
    topics_of,
    unpacked,
    words_of,
)
from keelbolt.kernel.redis.queues import RedisQueues
from keelbolt.kernel.redis.registry import RedisCatalog, RedisJournal
from keelbolt.kernel.redis.servers import RedisServers
from keelbolt.kernel.redis.transfer import StoreTransfer
from keelbolt.kernel.transfer.ports import Transfer
from keelbolt.kernel.work import Claim, Enqueue, WorkItem, WorkState

logger = logging.getLogger("keelbolt.kernel")

TIMEOUT_SECONDS = 10.0
MAX_TIMEOUT_SECONDS = 300.0
LISTEN_SECONDS = 2.0
ATTEMPTS = 8  # to read by an index while other processes change its declaration

_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class RedisKernel(BaseKernel):
    """A kernel on a Redis or Valkey server or cluster. Any number of processes may open it.

    ``namespace`` is the prefix of its keys; ``replicas`` is the number of replicas that must confirm each write;
    ``timeout_seconds`` limits every call, including reconnects.
    """

    engine = "redis"

    def __init__(
        self,
        address: RedisAddress,
        *,
        durability: Durability = "durable",
        declare: Iterable[Collection] = (),
        clock: Clock | None = None,
        namespace: str = "keelbolt",
        replicas: int = 0,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        super().__init__(durability=durability, declare=declare, clock=clock)
        if not _NAMESPACE.fullmatch(namespace):
            raise InvalidValue(f"a namespace is 1 to 64 letters, digits, '_', '.' and '-', not {namespace!r}")
        if not 0 <= replicas <= 100:
            raise InvalidValue(f"replicas is a number from 0 to 100, not {replicas}")
        if not 0 < timeout_seconds <= MAX_TIMEOUT_SECONDS:
            raise InvalidValue(f"the timeout is a number of seconds up to {MAX_TIMEOUT_SECONDS}, not {timeout_seconds}")
        self._store = RedisServers(
            address,
            Layout(namespace),
            durability=durability,
            replicas=replicas,
            timeout_seconds=timeout_seconds,
            meter=self.meter,
        )

    # -------------------------------------------------------------------------------------------------- lifecycle

    async def _open(self) -> None:
        store = self._store
        await store.open()
        self._queues = RedisQueues(store, self._tell, self.scoped)
        self._uploads = Uploads(store)
        self._catalog = RedisCatalog(store)
        try:
            await self._catalog.load()
        except BaseException:
            await store.close()
            raise
        for name, entry in self._catalog.entries.items():
            self.declared.shapes.setdefault(name, entry.shape)
        self._hints = RedisHints(
            self.board,
            store.layout.channel,
            store.announcer.sender,
            connect=store.connect,
            changes=store.changes,
            heads=store.heads,
        )
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                await self._hints.listening.wait()
        except TimeoutError:
            logger.warning("no notifications from other processes: readers poll")

    async def _close(self) -> None:
        await self._store.drained()
        await self._hints.close()
        await self._store.close()

    async def _flush(self) -> None:
        await self._store.drained()

    async def _declare(self, shape: CheckedCollection) -> None:
        await self._catalog.declare(shape)

    async def _health(self) -> tuple[bool, bool, str]:
        try:
            await self._store.read_registry(b"HLEN", b"catalog")
        except StorageError as error:
            return False, False, str(error)
        try:
            await self._store.write_registry("announce", b"0")
            mark, now = await RedisJournal(self._store).look()
        except StorageError as error:
            return True, False, str(error)
        if mark is not None and (refusal := mark.refusal(now)) is not None:
            return True, False, str(refusal)
        weakness = f"; but {self._store.weakness}" if self._store.weakness else ""
        return True, True, f"{self._store.name}: reads and writes work{weakness}"

    async def _stats(self) -> Stats:
        return await inspect.stats(self._store, self._catalog)

    async def _check(self) -> AsyncIterator[Problem]:
        async for problem in inspect.problems(self._store, self._catalog):
            yield problem

    async def _sweep(self, limit: int) -> Swept:
        return await self._queues.sweep(limit)

    async def _partitions(self, after: str, limit: int) -> Sequence[str]:
        return [name.decode() for name in await self._store.partitions(after.encode(), limit)]

    def _tell(self, topics: Sequence[Topic]) -> None:
        self.board.wake(topics)
        self._store.announcer.tell(topics)

    # ----------------------------------------------------------------------------------------------------- commit

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        words: list[bytes] = []
        shapes: dict[str, bytes] = {}
        workers: set[str] = set()
        for operation in operations:
            words += words_of(operation, self._queues.lease)
            kind = type(operation)
            if kind in RECORD_WRITES:
                name = operation.collection  # type: ignore[union-attr]
                shapes[name] = self._catalog.entries[name].text
            elif kind is Enqueue and operation.worker is not None:  # type: ignore[union-attr]
                workers.add(operation.worker)  # type: ignore[union-attr]
        head = [b"%d" % len(shapes)]
        for name, text in shapes.items():
            head += (name.encode(), text)
        head.append(b"1" if self._store.is_known(partition) else b"")

        def read(answer: Sequence[Any]) -> Receipt:
            outcomes = outcomes_of(operations, answer)
            self._store.remember(partition)
            for worker in workers:
                self._queues.alive(worker)
            self.board.wake(topics)
            if again := came_back(operations, answer):
                self._tell(again)
            return Receipt(operations, outcomes)

        topics = topics_of(partition, operations)
        function = "relief" if relieves(operations) else "commit"
        return self._store.write_and(function, partition, (*head, *words), read, topics)

    # ---------------------------------------------------------------------------------------------------- records

    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]:
        if not keys:
            return []
        rows = await self._store.read("records", partition, collection.encode(), *(key.encode() for key in keys))
        return [record_of(collection, key, row) if row else None for key, row in zip(keys, rows, strict=True)]

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
        prefix = partition_entry(partition)
        skip = len(prefix)
        words = (low[skip:], high[skip:], b"1" if newest_first else b"0", b"%d" % limit, b"records")
        find = partial(self._catalog.index, shape, index)
        rows = await self._indexed("scan", partition, shape.name, find, words)
        return [(prefix + row[0], record_of(shape.name, row[1].decode(), row[2:])) for row in rows]

    async def _count(
        self, partition: str, shape: CheckedCollection, index: int, low: bytes, high: bytes, cap: int
    ) -> int:
        skip = len(partition_entry(partition))
        find = partial(self._catalog.index, shape, index)
        if shape.collection.expiring:
            words = (low[skip:], high[skip:], b"0", b"%d" % cap, b"count")
            found = await self._indexed("scan", partition, shape.name, find, words)
        else:
            found = await self._indexed("length", partition, shape.name, find, (low[skip:], high[skip:], b"%d" % cap))
        return int(found[0]) if found else 0

    async def _counter(self, partition: str, shape: CheckedCollection, counter: int, group: bytes) -> int:
        skip = len(partition_entry(partition))
        find = partial(self._catalog.counter, shape, counter)
        found = await self._indexed("counter", partition, shape.name, find, (group[skip:],))
        return int(found[0]) if found else 0

    async def _indexed(
        self, name: str, partition: str, collection: str, find: Callable[[], tuple[Any, int]], words: Sequence[bytes]
    ) -> Sequence[Any]:
        """Read by an index or counter of the current declaration; first make the partition adopt it if necessary."""
        for _ in range(ATTEMPTS):
            entry, number = find()
            head = (collection.encode(), b"%d" % entry.version, b"%d" % number)
            reply: list[Any] = await self._store.read(name, partition, *head, *words)
            status = reply[0]
            if status == 1:
                return reply[1:]
            if status == 0:
                return ()
            if status == -1:
                await self._catalog.take_over(collection, partition)
            else:
                await self._catalog.reload(collection)
        raise SchemaMismatch(
            f"other processes keep changing the declaration of collection {collection!r}; run one program version"
        )

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
        words = (
            f"{log}/{stream}".encode(),
            b"%d" % after,
            b"" if before is None else b"%d" % before,
            b"%d" % limit,
            b"%d" % max_bytes,
            b"1" if backward else b"0",
        )
        head, floor, page = await self._store.read("log", partition, *words)
        return LogPage(tuple(_entries(log, page)), head, floor)

    async def _log_state(self, partition: str, log: str, stream: str) -> LogState:
        head, floor = await self._store.command(partition, b"HMGET", f"s/{log}/{stream}".encode(), b"h", b"f")
        return LogState(int(head or 0), int(floor or 0))

    async def _seq_of(self, partition: str, log: str, stream: str, dedupe: str) -> int | None:
        name = f"d/{log}/{stream}".encode()
        seq = await self._store.command(partition, b"HGET", name, b"=" + dedupe.encode())
        return None if seq is None else int(seq)

    # ------------------------------------------------------------------------------------------------------- work

    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        return await self._queues.claim(queue, worker, limit, lease_seconds)

    async def _heartbeat(self, worker: str, lease_seconds: float) -> None:
        await self._queues.heartbeat(worker, lease_seconds)

    async def _retire(self, worker: str) -> int:
        return await self._queues.retire(worker)

    async def _work(self, partition: str, queue: str, key: str) -> WorkItem | None:
        now, row = await self._store.read("work", partition, queue.encode(), key.encode())
        return work_item((partition, queue, key), _work_row(row), now=now) if row else None

    async def _list_work(
        self, partition: str, queue: str, state: WorkState, after: str, limit: int
    ) -> Sequence[WorkItem]:
        words = (queue.encode(), state.encode(), after.encode(), b"%d" % limit)
        now, *rows = await self._store.read("list_work", partition, *words)
        return [
            work_item((partition, queue, key.decode()), _work_row(row), now=now)
            for key, row in zip(rows[::2], rows[1::2], strict=True)
        ]

    async def _count_work(self, queues: Sequence[str]) -> WorkCounts:
        return await inspect.count_work(self._store, queues)

    # ------------------------------------------------------------------------------------------------------ blobs

    async def _stage(self, partition: str, keep_seconds: float) -> int:
        return await self._uploads.begin(partition, keep_seconds)

    async def _stage_chunk(self, partition: str, upload: int, number: int, data: bytes, digest: bytes) -> None:
        await self._uploads.chunk(partition, upload, number, data, digest)

    async def _stage_done(self, partition: str, upload: int, blob: Blob, keep_seconds: float) -> bool:
        return await self._uploads.done(partition, upload, blob, keep_seconds)

    async def _stage_undo(self, partition: str, upload: int) -> None:
        await self._uploads.undo(partition, upload)

    async def _blob(self, partition: str, digest: str) -> tuple[int, int] | None:
        return await self._uploads.find(partition, digest)

    async def _blob_chunk(self, partition: str, upload: int, number: int) -> tuple[bytes, bytes] | None:
        return await self._uploads.read(partition, upload, number)

    # --------------------------------------------------------------------------------------------------- transfer

    def _transfer(self) -> Transfer:
        return StoreTransfer(self._store, self._catalog, self.declared)


def _entries(log: str, page: bytes) -> list[Entry]:
    entries = []
    for seq, at, kind, data, _, crc in unpacked(page):
        if entry_checksum(kind, data) != crc:
            raise StorageCorrupt.of(f"entry {seq} of a stream of {log!r}")
        entries.append(Entry(seq, kind, data, at))
    return entries


def _work_row(row: Sequence[bytes]) -> WorkRow:
    state, lane, priority, ready_at, attempt, max_attempts, fence, holder, again_at, reason = row
    return WorkRow(
        work_state(state.decode()),
        lane.decode(),
        int(priority),
        int(ready_at),
        int(attempt),
        int(max_attempts),
        int(fence),
        holder.decode() or None,
        int(again_at) if again_at else None,
        reason[1:].decode() if reason else None,
    )


# -------------------------------------------------------------------------------------------------------------- uploads


_DIGEST_BYTES = 32


def _name(upload: int) -> bytes:
    return b"%016x" % upload


class Uploads:
    def __init__(self, store: RedisServers) -> None:
        self._store = store

    async def begin(self, partition: str, keep_seconds: float) -> int:
        upload = secrets.randbits(63)
        await self._store.write("blob_begin", partition, _name(upload), micros(keep_seconds))
        return upload

    async def chunk(self, partition: str, upload: int, number: int, data: bytes, digest: bytes) -> None:
        await self._store.command(partition, b"SET", b"u/%b/%d" % (_name(upload), number), digest + data, writes=True)

    async def done(self, partition: str, upload: int, blob: Blob, keep_seconds: float) -> bool:
        words = (_name(upload), blob.digest.encode(), b"%d" % blob.size, b"%d" % blob.chunks, micros(keep_seconds))
        return bool(await self._store.write("blob_name", partition, *words))

    async def undo(self, partition: str, upload: int) -> None:
        await self._store.write("blob_undo", partition, _name(upload))

    async def find(self, partition: str, digest: str) -> tuple[int, int] | None:
        upload, size = await self._store.command(partition, b"HMGET", b"b/" + digest.encode(), b"u", b"s")
        return (int(upload, 16), int(size)) if upload is not None else None

    async def read(self, partition: str, upload: int, number: int) -> tuple[bytes, bytes] | None:
        data = await self._store.command(partition, b"GET", b"u/%b/%d" % (_name(upload), number))
        return (data[_DIGEST_BYTES:], data[:_DIGEST_BYTES]) if data is not None else None
