"""The contract of the kernel. Every engine fulfils each sentence below; `keelbolt.conformance.kernel` tests them.

**Partitions.** Every key belongs to one partition. A commit names one partition and can't read or write another one. No
law spans two partitions, except that `claim` serves them all.

**Commit** is the only write.

- It is atomic: readers see all of it or nothing.
- All its checks see the state before it. It writes a key, stream, work item or blob holding at most once.
- A refusal names the failed check and the stored value, and does not affect other callers.
- It copies its arguments and takes its place in the order before its first ``await``: call order is commit order, and
  a caller that never awaits it loses nothing. Awaiting returns when it is committed.
- Acknowledged means committed, at the declared durability: ``durable`` survives kill -9 and power loss; ``relaxed``
  survives kill -9, and power loss may take the last moments, but never leaves a hole in the middle.
- A read after an acknowledged commit sees it.

**Records.** A version starts at 1 and grows by 1 with each write (after a delete it starts again at 1). Readers and
checks treat an expired record as absent, even before it is swept. Bodies are returned byte for byte.

**find** needs a declared index that covers its filters and its order. Following the cursors to the end returns each
record exactly once if it matches throughout and does not move; a record that moves meanwhile may be missed or repeated.

**Logs.** The seqs of a stream are 1..n without gaps, in commit order, the same for every reader. Entries that one
commit appends to several streams become visible together. Entries below the floor are reported as trimmed, never
skipped.

**Work.** An item has at most one holder. Each claim gives it a fence greater than all earlier ones; operations with an
older fence are refused. A lease belongs to a worker incarnation, runs by the engine's own clock and is renewed by one
heartbeat; when it ends, other workers can claim all its items. While the worker's process is alive, the lease does not
end early; an engine that detects the death of a process ends the lease at once. Claims serve items of expired leases
first, then the fairness keys in turn; within a fairness key the higher priority first, then the longer wait (an engine
that keeps its queues per partition serves the partitions of a fairness key in turn).

**Blobs.** A blob exists from staging until its last holder has detached and its grace period is over. Reads verify its
bytes.

**Notifications.** A commit of any process wakes a watch, usually at once, at the latest with the engine's safety poll.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from keelbolt.kernel.blobs import STAGED_SECONDS, Blob, BlobReader, BlobSource, Detach
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.hints import Topic, Watch
from keelbolt.kernel.logs import PAGE_BYTES, Entry, LogPage, LogState
from keelbolt.kernel.records import Collection, Count, Page, Query, Record
from keelbolt.kernel.scope import Scope
from keelbolt.kernel.work import Claim, WorkItem, WorkPage, WorkState
from keelbolt.observability.metrics import Meter

Durability = Literal["durable", "relaxed"]

LEASE_SECONDS = 15.0
MAX_VALUE_BYTES = 16 * 1024 * 1024
MAX_COMMIT_BYTES = 64 * 1024 * 1024
MAX_KEY_CHARS = 4000
MAX_PARTITION_BYTES = 200
MAX_REASON_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Health:
    """Whether reads and writes work now. ``detail`` is text for people."""

    engine: str
    durability: Durability
    reads: bool
    writes: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Stats:
    """Totals of the stored data. ``work`` counts items by queue and state."""

    partitions: int
    records: dict[str, int]
    streams: int
    entries: int
    blobs: int
    blob_bytes: int
    work: dict[str, dict[WorkState, int]]
    workers: int
    bytes: int
    engine: dict[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkCounts:
    """Totals of the work items.

    ``work`` counts items by queue and state; ``holders`` counts held items by worker. ``workers`` maps each known
    worker to the seconds until its lease ends (negative: it has ended). ``oldest`` is the longest wait of a ready item
    in each queue, in seconds; a queue without a ready item is absent.
    """

    work: dict[str, dict[WorkState, int]]
    holders: dict[str, int]
    workers: dict[str, float]
    oldest: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Swept:
    """Counts of the items that a sweep removed."""

    records: int = 0
    blobs: int = 0
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Wiped:
    """The data that a wipe removes: records of a collection, and their log streams, work items and blob holdings.

    ``logs`` and ``queues`` use the keys of the records; ``blobs`` returns the holdings that a record releases.
    """

    collection: str
    logs: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    blobs: Callable[[Record], Iterable[Detach]] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A damaged part of the store: ``where`` it is, and ``what`` is wrong."""

    where: str
    what: str


class Kernel(ABC):
    """One open storage. Created by `keelbolt.kernel.open_storage`, used as an async context manager.

    It belongs to the event loop that opened it; use from another loop or after fork() is refused. ``engine`` is its
    name: memory, sqlite, postgresql, redis, or the name that a third party registers.
    """

    engine: str
    meter: Meter | None = None
    """Storage metrics of this process, if the engine measures them."""

    # -------------------------------------------------------------------------------------------------- lifecycle

    @abstractmethod
    async def open(self) -> None:
        """Open the storage, apply migrations and declare the collections. Use `async with` instead."""

    @abstractmethod
    async def close(self) -> None:
        """Finish every commit that was called, then release all resources. A second close does nothing."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def declare(self, *families: Collection) -> None:
        """Declare collections; a changed declaration rebuilds its indexes and counters once."""

    @abstractmethod
    async def flush(self) -> None:
        """Return when every commit called before this is committed."""

    @abstractmethod
    async def health(self) -> Health:
        """Check whether reads and writes work. Never raises."""

    @abstractmethod
    async def stats(self) -> Stats:
        """Count everything; may take long on a large store."""

    @abstractmethod
    def check(self) -> AsyncIterator[Problem]:
        """Read everything and yield the damaged parts."""

    @abstractmethod
    async def sweep(self, *, limit: int = 500) -> Swept:
        """Remove expired records, blobs without a holder and workers that are long gone, up to ``limit`` of each."""

    async def wipe(self, partition: str, family: Wiped, *, limit: int = 500) -> int | None:
        """Remove up to ``limit`` records of a collection in this partition at once, and return their number.

        Return None if this engine has no faster way than commits; then delete the records by commits.
        """
        del partition, family, limit
        return None

    async def scrub(self) -> None:
        """Overwrite deleted data if the engine owns the files. Database servers have their own means."""
        await self.flush()

    @abstractmethod
    async def partitions(self, *, after: str = "", limit: int = 1000) -> Sequence[str]:
        """Return the names of partitions in order, starting after ``after``."""

    def scoped(self, partition: str) -> Scope:
        """Return this kernel bound to one partition: the handle that every face works with."""
        return Scope(self, partition)

    async def scopes(self, *, prefix: str = "", after: str = "") -> AsyncIterator[Scope]:
        """Yield the scopes of all partitions in order: those after ``after`` whose names begin with ``prefix``."""
        after = after or prefix[:-1]  # a partition's name may equal the prefix
        while names := await self.partitions(after=after):
            for name in names:
                if name.startswith(prefix):
                    yield self.scoped(name)
                elif name > prefix:
                    return
            after = names[-1]

    # ----------------------------------------------------------------------------------------------------- commit

    @abstractmethod
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        """Apply all operations or none. Raise CommitRefused if a check fails."""

    # ---------------------------------------------------------------------------------------------------- records

    @abstractmethod
    async def get(self, partition: str, collection: str, key: str) -> Record | None:
        """Return the record, or None."""

    @abstractmethod
    async def get_many(self, partition: str, collection: str, keys: Iterable[str]) -> Sequence[Record | None]:
        """Return a record or None for each key, in the order of the keys, all read at the same moment."""

    @abstractmethod
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        """Return a page of records. Raise NoIndex if no declared index covers the query."""

    async def scan(
        self, partition: str, query: Query, *, limit: int | None = None, page: int = 200
    ) -> AsyncIterator[Record]:
        """Yield the first ``limit`` records of the query (None: all), read page by page.

        The caller may delete the records that it gets.
        """
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            found = await self.find(partition, query, limit=page if left is None else min(page, left), cursor=cursor)
            for record in found.records:
                yield record
            cursor = found.cursor
            if cursor is None:
                return
            if left is not None:
                left -= len(found.records)

    @abstractmethod
    async def count(self, partition: str, query: Query, *, cap: int = 10_000) -> Count:
        """Return the number of matching records: exact if a counter is declared, otherwise counted up to ``cap``."""

    # ------------------------------------------------------------------------------------------------------- logs

    @abstractmethod
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
        """Return entries with after < seq < before, oldest first, or newest first with ``backward``.

        A page ends at ``limit`` entries or once it holds ``max_bytes``, but has at least one entry if there is one.
        ``after`` below the floor raises LogTrimmed; None starts at the floor.
        """

    @abstractmethod
    async def log_state(self, partition: str, log: str, stream: str) -> LogState:
        """Return head and floor; (0, 0) for a stream that was never written."""

    @abstractmethod
    async def seq_of(self, partition: str, log: str, stream: str, dedupe: str) -> int | None:
        """Return the seq of the entry with this dedupe key; None if there is none or it was trimmed."""

    @abstractmethod
    def tail(self, partition: str, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        """Yield the entries after this seq, then each new one as it is committed, without end."""

    # ------------------------------------------------------------------------------------------------------- work

    @abstractmethod
    async def claim(
        self, queue: str, worker: str, *, limit: int = 1, lease_seconds: float = LEASE_SECONDS
    ) -> Sequence[Claim]:
        """Claim up to ``limit`` ready items for this worker incarnation, and renew its lease."""

    @abstractmethod
    async def heartbeat(self, worker: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Renew the lease of everything that this worker holds."""

    @abstractmethod
    async def retire(self, worker: str) -> int:
        """Release all items of this worker and remove the worker. Return the number of released items."""

    @abstractmethod
    async def work(self, partition: str, queue: str, key: str) -> WorkItem | None:
        """Return the work item, or None."""

    @abstractmethod
    async def list_work(
        self, partition: str, queue: str, *, state: WorkState, limit: int = 50, cursor: str | None = None
    ) -> WorkPage:
        """Return the items of a queue in this state, ordered by key."""

    @abstractmethod
    async def count_work(self, queues: Sequence[str]) -> WorkCounts:
        """Count the items of these queues in all partitions, each partition at one moment.

        The cost does not depend on other stored data.
        """

    # ------------------------------------------------------------------------------------------------------ blobs

    @abstractmethod
    async def stage_blob(self, partition: str, source: BlobSource, *, keep_seconds: float = STAGED_SECONDS) -> Blob:
        """Write bytes, text, a file or a stream without holding it in memory; attach it within ``keep_seconds``."""

    @abstractmethod
    async def open_blob(self, partition: str, digest: str) -> BlobReader:
        """Return a reader of the blob, staged or committed. Raise BlobNotFound if there is none."""

    # ---------------------------------------------------------------------------------------------- notifications

    @abstractmethod
    def watch(self, topic: Topic, then: Callable[[], None] | None = None) -> Watch:
        """Return a watch that wakes on each append to its stream, on its drop, or on ready work in its queue.

        Enter it before reading. Commits of other processes wake it too; if a notification is lost, the engine's safety
        poll wakes it within seconds, so a reader of a log needs no poll of its own. Delayed items and expired leases of
        a queue do not wake it. ``then`` is called at each wake, in the event loop.
        """
