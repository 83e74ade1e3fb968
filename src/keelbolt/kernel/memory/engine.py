"""The memory engine."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import chain, islice

from msgspec.structs import replace

from keelbolt.errors import CommitRefused, StorageUnavailable
from keelbolt.kernel.base_kernel import BaseKernel
from keelbolt.kernel.blobs import STAGED_SECONDS, Blob
from keelbolt.kernel.clock import Clock
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import LEASE_SECONDS, Durability, Problem, Stats, Swept, WorkCounts
from keelbolt.kernel.declarations import CheckedCollection
from keelbolt.kernel.hints import QueueTopic
from keelbolt.kernel.judge import MICROSECONDS, judge
from keelbolt.kernel.ledger import Key, RecordState, claimed, oldest_ready, work_counts, work_item
from keelbolt.kernel.logs import Entry, LogPage, LogState
from keelbolt.kernel.memory.content import Content, MemoryQueues, Upload
from keelbolt.kernel.memory.transfer import MemoryTransfer
from keelbolt.kernel.records import Collection, Record
from keelbolt.kernel.transfer.ports import Transfer
from keelbolt.kernel.work import Claim, WorkItem, WorkState


class MemoryKernel(BaseKernel):
    """A kernel in this process's memory. Every commit is applied when it is called."""

    engine = "memory"

    def __init__(
        self, *, durability: Durability = "durable", declare: Iterable[Collection] = (), clock: Clock | None = None
    ) -> None:
        super().__init__(durability=durability, declare=declare, clock=clock)
        self._content = content = Content(self.declared, self.clock.steady, self._save)
        self._ledger, self._indexes, self._entries = content.ledger, content.indexes, content.entries
        self._uploads, self._blobs, self._holders = content.uploads, content.blobs, content.holders
        self._names = content.names
        self._queues = MemoryQueues()
        self._expiring: dict[Key, int] = {}

    # -------------------------------------------------------------------------------------------------- lifecycle

    async def _open(self) -> None:
        pass

    async def _close(self) -> None:
        pass

    async def _flush(self) -> None:
        pass

    async def _health(self) -> tuple[bool, bool, str]:
        try:
            self._content.obey()
        except StorageUnavailable as refusal:
            return True, False, str(refusal)
        return True, True, "in memory: nothing survives this process"

    async def _declare(self, shape: CheckedCollection) -> None:
        self._content.declare(shape)

    async def _partitions(self, after: str, limit: int) -> Sequence[str]:
        return sorted(name for name in self._names if name > after)[:limit]

    async def _stats(self) -> Stats:
        now = self.clock.steady()
        ledger = self._ledger
        work = Counter((key[1], row.state) for key, row in ledger.work.items() if row is not None)
        blobs = [upload.blob.size for upload in self._uploads.values() if upload.blob is not None]
        return Stats(
            partitions=len(self._names),
            records=Counter(key[1] for key, state in ledger.records.items() if _live(state, now)),
            streams=sum(stream is not None for stream in ledger.streams.values()),
            entries=sum(map(len, self._entries.values())),
            blobs=len(blobs),
            blob_bytes=sum(blobs),
            work=work_counts((*place, count) for place, count in work.items()),
            workers=len(self._queues.leases),
            bytes=sum(blobs) + sum(len(entry.data) for entries in self._entries.values() for entry in entries),
        )

    async def _check(self) -> AsyncIterator[Problem]:
        for upload in self._uploads.values():
            for number, (data, digest) in enumerate(upload.chunks):
                if hashlib.sha256(data).digest() != digest:
                    yield Problem(f"blob {upload.blob}", f"chunk {number} is damaged")

    async def _sweep(self, limit: int) -> Swept:
        self._content.obey()
        now = self.clock.steady()
        gone = list(islice((key for key, until in self._expiring.items() if until <= now), limit))
        for key in gone:
            self._ledger.put_record(key, None)
        self._save(now)
        uploads = [
            number
            for number, upload in self._uploads.items()
            if upload.expires_at <= now
            and not (upload.blob and self._holders.get((upload.partition, upload.blob.digest)))
        ][:limit]
        for number in uploads:
            self._content.forget(number)
        workers = [
            worker
            for worker, until in self._queues.leases.items()
            if until <= now and not self._queues.held.get(worker)
        ][:limit]
        for worker in workers:
            del self._queues.leases[worker]
            self._queues.held.pop(worker, None)
        return Swept(len(gone), len(uploads), len(workers))

    # ----------------------------------------------------------------------------------------------------- commit

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        now = self.clock.steady()
        try:
            self._content.obey()
            outcomes = judge(self._ledger, partition, operations, now=now, at=self.clock.wall())
        except (CommitRefused, StorageUnavailable) as refusal:
            future.set_exception(refusal.with_traceback(None))  # it refers to the future
            return future
        self._names.add(partition)
        self._save(now)
        future.set_result(Receipt(operations, outcomes))
        return future

    def _save(self, now: int) -> None:
        ledger = self._ledger
        shapes, expiring = self.declared.shapes, self._expiring
        for key in ledger.changed_records:
            new = ledger.records[key]
            self._indexes.change(shapes[key[1]], key, new)
            if expiring:
                expiring.pop(key, None)
            if new is None:
                del ledger.records[key]
            elif new.expires_at is not None:
                expiring[key] = new.expires_at
        for key, row in ledger.changed_work.items():
            self._queues.change(key, row, ledger.work[key], now=now)
            if ledger.work[key] is None:
                del ledger.work[key]
        for worker in ledger.workers:
            if self._queues.leases.get(worker, 0) <= now:
                self._queues.leases[worker] = now + int(LEASE_SECONDS * MICROSECONDS)
        self._save_logs()
        for (partition, digest, holder), held in ledger.holdings.items():
            place = (partition, digest)
            if held:
                self._holders.setdefault(place, set()).add(holder)
            elif holder in self._holders.get(place, ()):
                self._holders[place].remove(holder)
                upload = self._uploads[self._blobs[place]]
                upload.expires_at = max(upload.expires_at, now + int(STAGED_SECONDS * MICROSECONDS))
        topics = tuple(ledger.topics)
        ledger.settle()
        self.board.wake(topics)

    def _save_logs(self) -> None:
        ledger = self._ledger
        for new in ledger.entries:
            self._entries.setdefault(new.stream, []).append(Entry(new.seq, new.kind, new.data, new.at))
        for stream, through in ledger.trims:
            entries = self._entries[stream]
            del entries[: through - entries[0].seq + 1]
        for stream in ledger.drops:
            self._entries.pop(stream, None)
        for key in ledger.changed_streams:
            if ledger.streams[key] is None:
                del ledger.streams[key]
        if ledger.trims or ledger.drops:
            floors = {state.id: state.floor for state in ledger.streams.values() if state is not None}
            ledger.dedupes = {place: seq for place, seq in ledger.dedupes.items() if seq > floors.get(place[0], seq)}

    # ---------------------------------------------------------------------------------------------------- records

    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]:
        now = self.clock.steady()
        return [self._record((partition, collection, key), now) for key in keys]

    def _record(self, key: Key, now: int) -> Record | None:
        state = self._ledger.records.get(key)
        if state is None or not _live(state, now):
            return None
        assert state.body is not None
        return Record(key[1], key[2], state.version, state.body, dict(state.fields))

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
        now = self.clock.steady()
        entries = self._indexes.scan(shape.name, index, low, high, newest_first=newest_first)
        found = ((entry, self._record(key, now)) for entry, key in entries)
        return list(islice(((entry, record) for entry, record in found if record is not None), limit))

    async def _count(
        self, partition: str, shape: CheckedCollection, index: int, low: bytes, high: bytes, cap: int
    ) -> int:
        return len(await self._scan(partition, shape, index, low, high, newest_first=False, limit=cap))

    async def _counter(self, partition: str, shape: CheckedCollection, counter: int, group: bytes) -> int:
        return self._indexes.total(shape.name, counter, group)

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
        state = self._ledger.streams.get((partition, log, stream))
        if state is None:
            return LogPage((), 0, 0)
        entries = self._entries.get(state.id, [])  # none yet after Start
        start = max(after - state.floor, 0)
        stop = len(entries) if before is None else max(min(before - state.floor - 1, len(entries)), 0)
        numbers = range(start, stop)
        page: list[Entry] = []
        size = 0
        for number in islice(reversed(numbers) if backward else numbers, limit):
            if page and size + len(entries[number].data) > max_bytes:
                break
            page.append(entries[number])
            size += len(entries[number].data)
        return LogPage(tuple(page), state.head, state.floor)

    async def _log_state(self, partition: str, log: str, stream: str) -> LogState:
        state = self._ledger.streams.get((partition, log, stream))
        return LogState(state.head, state.floor) if state else LogState(0, 0)

    async def _seq_of(self, partition: str, log: str, stream: str, dedupe: str) -> int | None:
        state = self._ledger.streams.get((partition, log, stream))
        return self._ledger.dedupes.get((state.id, dedupe)) if state else None

    # ------------------------------------------------------------------------------------------------------- work

    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        self._content.obey()
        await self._heartbeat(worker, lease_seconds)
        now = self.clock.steady()
        rows = self._ledger.work
        expired, ready = self._queues.expired(queue, rows, now=now), self._queues.ready(queue, rows, now=now)
        claims = []
        for key in islice(chain(expired, ready), limit):  # lazy: each item is claimed before the next is selected
            row = rows[key]
            assert row is not None
            fence = self._ledger.next_fence()
            held = replace(row, state="held", holder=worker, attempt=row.attempt + 1, fence=fence)
            self._ledger.put_work(key, held)
            claims.append(claimed(self.scoped(key[0]), key, held))
        self._save(now)
        return claims

    async def _heartbeat(self, worker: str, lease_seconds: float) -> None:
        self._queues.leases[worker] = self.clock.steady() + int(lease_seconds * MICROSECONDS)

    async def _retire(self, worker: str) -> int:
        now = self.clock.steady()
        keys = tuple(self._queues.held.get(worker, ()))
        for key in keys:
            row = self._ledger.work[key]
            assert row is not None
            ready_at = now if row.again_at is None else min(now, row.again_at)
            freed = replace(
                row, state="waiting", holder=None, again_at=None, ready_at=ready_at, attempt=row.attempt - 1
            )
            self._ledger.put_work(key, freed)
            self._ledger.topics.add(QueueTopic(key[1]))
        self._save(now)
        self._queues.leases.pop(worker, None)
        self._queues.held.pop(worker, None)
        return len(keys)

    async def _work(self, partition: str, queue: str, key: str) -> WorkItem | None:
        place = (partition, queue, key)
        row = self._ledger.work.get(place)
        return work_item(place, row, now=self.clock.steady()) if row else None

    async def _list_work(
        self, partition: str, queue: str, state: WorkState, after: str, limit: int
    ) -> Sequence[WorkItem]:
        now = self.clock.steady()
        rows = sorted(
            (key, row)
            for key, row in self._ledger.work.items()
            if row is not None and key[:2] == (partition, queue) and key[2] > after and row.state == state
        )
        return [work_item(key, row, now=now) for key, row in rows[:limit]]

    async def _count_work(self, queues: Sequence[str]) -> WorkCounts:
        rows = [(key[1], row) for key, row in self._ledger.work.items() if row is not None and key[1] in queues]
        items = Counter((queue, row.state) for queue, row in rows)
        holders = Counter(row.holder for _, row in rows if row.holder is not None)
        work = work_counts((*place, count) for place, count in items.items())
        now = self.clock.steady()
        workers = {worker: (until - now) / MICROSECONDS for worker, until in self._queues.leases.items()}
        ready = [(queue, row.ready_at) for queue, row in rows if row.state == "waiting"]
        return WorkCounts(work, dict(holders), workers, oldest_ready(ready, now=now))

    # ------------------------------------------------------------------------------------------------------ blobs

    async def _stage(self, partition: str, keep_seconds: float) -> int:
        number = next(self._content.upload_numbers)
        expires_at = self.clock.steady() + int(max(keep_seconds, STAGED_SECONDS) * MICROSECONDS)
        self._uploads[number] = Upload(partition, expires_at)
        return number

    async def _stage_chunk(self, partition: str, upload: int, number: int, data: bytes, digest: bytes) -> None:
        if (found := self._uploads.get(upload)) is not None:  # otherwise a sweep has removed it
            assert number == len(found.chunks)
            found.chunks.append((data, digest))

    async def _stage_done(self, partition: str, upload: int, blob: Blob, keep_seconds: float) -> bool:
        expires_at = self.clock.steady() + int(keep_seconds * MICROSECONDS)
        self._content.obey()
        if upload not in self._uploads:
            return False
        known = self._blobs.get((partition, blob.digest))
        self._names.add(partition)
        if known is not None:
            del self._uploads[upload]
            self._uploads[known].expires_at = max(self._uploads[known].expires_at, expires_at)
            return True
        self._uploads[upload].blob = blob
        self._uploads[upload].expires_at = expires_at
        self._blobs[partition, blob.digest] = upload
        self._ledger.blobs[partition, blob.digest] = True
        return True

    async def _stage_undo(self, partition: str, upload: int) -> None:
        self._uploads.pop(upload, None)

    async def _blob(self, partition: str, digest: str) -> tuple[int, int] | None:
        number = self._blobs.get((partition, digest))
        if number is None:
            return None
        blob = self._uploads[number].blob
        assert blob is not None
        return number, blob.size

    async def _blob_chunk(self, partition: str, upload: int, number: int) -> tuple[bytes, bytes] | None:
        kept = self._uploads.get(upload)
        return kept.chunks[number] if kept is not None else None

    # ----------------------------------------------------------------------------------------------------- copies

    def _transfer(self) -> Transfer:
        return MemoryTransfer(self._content)


def _live(state: RecordState | None, now: int) -> bool:
    return state is not None and (state.expires_at is None or state.expires_at > now)
