"""The contract of the kernel: every engine obeys each sentence below, and `keelbolt.conformance.storage` checks it.

**Partitions.** Every key belongs to one partition. A commit names its one partition and can touch nothing outside it:
what lies in another partition does not exist for it. No law spans two partitions, except that `claim` serves them all.

**Commit** is the one write.

- It happens whole or not at all, and nobody ever sees a part of it.
- All its checks see the state before it; a key, stream, work item or blob holding is written at most once in it.
- A refusal names the failed check and what is stored now, and harms no other caller.
- It copies what it is given and takes its place before its first ``await``: call order is commit order, and a caller
  who never awaits it loses nothing. Awaiting returns when it is committed.
- Acknowledged means committed, at the declared durability: ``durable`` survives kill -9 and power loss, ``relaxed``
  survives kill -9 and may lose the last moments at power loss, never a hole in the middle.
- Whoever reads after an acknowledged commit sees it.

**Records.** A version starts at 1 and grows by 1 with each write (a deleted key starts anew). An expired record is gone
for every reader and check, before it is swept. Bodies come back byte for byte.

**find** needs a declared index that covers its filters and its order. Following the cursors to the end returns every
record that matched throughout and did not move exactly once; one that moves meanwhile may be missed or repeated.

**Logs.** The seqs of a stream are 1..n without gaps, in commit order, the same for every reader. Entries that one
commit appends to several streams become visible together. What lies below the floor is reported as trimmed, never
skipped.

**Work.** An item has at most one holder. Each claim gives it a fence greater than all before it; what carries an older
fence is refused. A lease belongs to a worker incarnation, runs by the engine's own clock and is renewed by one
heartbeat; when it ends, all its items can be claimed by others. While the worker's process lives, it does not end
before its time; an engine that notices the death of a process ends it at once. Claims serve items of expired leases
first, then the lanes in turn; within a lane the larger priority, then the longer wait (an engine that keeps its queues
per partition serves the partitions of a lane in turn).

**Blobs.** A blob is there from staging until its last holder let go and its grace is over. Reading checks its bytes.

**Hints.** A watch is woken by a commit of any process, usually at once, surely within the engine's safety poll.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from keelbolt.storage.blobs import STAGED_SECONDS, Blob, BlobReader, BlobSource, Detach
from keelbolt.storage.commits import Operation, Receipt
from keelbolt.storage.hints import Topic, Watch
from keelbolt.storage.logs import PAGE_BYTES, Entry, LogPage, LogState
from keelbolt.storage.meter import Meter
from keelbolt.storage.records import Collection, Count, Page, Query, Record
from keelbolt.storage.scope import Scope
from keelbolt.storage.work import Claim, WorkItem, WorkPage, WorkState

Durability = Literal["durable", "relaxed"]

LEASE_SECONDS = 15.0
MAX_VALUE_BYTES = 16 * 1024 * 1024
MAX_COMMIT_BYTES = 64 * 1024 * 1024
MAX_KEY_CHARS = 4000
MAX_PARTITION_BYTES = 200
MAX_REASON_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Health:
    """Whether reads and writes work now. ``detail`` is for people."""

    engine: str
    durability: Durability
    reads: bool
    writes: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Stats:
    """How much is kept. ``work`` counts items by queue and state."""

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
    """How much work there is.

    ``work`` counts items by queue and state, ``holders`` held items by worker. ``workers`` are the known workers with
    the seconds until their leases end (negative: it has ended). ``oldest`` is how long the item of each queue that has
    been ready for longest has waited, in seconds; a queue without a ready item is not in it.
    """

    work: dict[str, dict[WorkState, int]]
    holders: dict[str, int]
    workers: dict[str, float]
    oldest: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed."""

    records: int = 0
    blobs: int = 0
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Wiped:
    """What a wipe removes: records of a collection, and log streams, work items and holdings that belong to them.

    ``logs`` and ``queues`` use the keys of the records; ``blobs`` returns what a record lets go of.
    """

    collection: str
    logs: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    blobs: Callable[[Record], Iterable[Detach]] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written: where, and what."""

    where: str
    what: str


class Kernel(ABC):
    """One open storage. Made by `keelbolt.storage.open_storage`, used as an async context manager.

    It belongs to the event loop that opened it; use from another loop or after fork() is refused. ``engine`` is its
    name: memory, sqlite, postgresql, redis, or whatever a third party calls its own.
    """

    engine: str
    meter: Meter | None = None
    """What this process measures of the storage, where the engine does so."""

    # -------------------------------------------------------------------------------------------------- lifecycle

    @abstractmethod
    async def open(self) -> None:
        """Open, migrate, and declare. Use `async with` instead."""

    @abstractmethod
    async def close(self) -> None:
        """Finish every commit that was called, then let go of everything. A second close does nothing."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def declare(self, *families: Collection) -> None:
        """Make collections known; a changed declaration rebuilds its indexes and counters, once."""

    @abstractmethod
    async def flush(self) -> None:
        """Return when every commit called before this is committed."""

    @abstractmethod
    async def health(self) -> Health:
        """Look whether reads and writes work; never raises."""

    @abstractmethod
    async def stats(self) -> Stats:
        """Count everything; may take a while on a large store."""

    @abstractmethod
    def check(self) -> AsyncIterator[Problem]:
        """Read everything and report what is damaged."""

    @abstractmethod
    async def sweep(self, *, limit: int = 500) -> Swept:
        """Remove up to ``limit`` of each: expired records, blobs without a holder, workers long gone."""

    async def wipe(self, partition: str, family: Wiped, *, limit: int = 500) -> int | None:
        """Remove up to ``limit`` records of a collection in this partition at once, and return how many it were.

        None: this engine has no faster way than commits; delete the records by those.
        """
        del partition, family, limit
        return None

    async def scrub(self) -> None:
        """Overwrite what was deleted, where the engine owns the files. A server that keeps them has its own ways."""
        await self.flush()

    @abstractmethod
    async def partitions(self, *, after: str = "", limit: int = 1000) -> Sequence[str]:
        """The names of partitions in order, from the one after ``after``."""

    def scoped(self, partition: str) -> Scope:
        """Return this kernel bound to one partition: the handle that every face works with."""
        return Scope(self, partition)

    async def scopes(self, *, prefix: str = "", after: str = "") -> AsyncIterator[Scope]:
        """The scopes of all partitions in order: those after ``after`` whose names begin with ``prefix``."""
        after = after or prefix[:-1]  # a partition may have the prefix itself as its name
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
        """Do all of this, or nothing. Raises CommitRefused when a check fails."""

    # ---------------------------------------------------------------------------------------------------- records

    @abstractmethod
    async def get(self, partition: str, collection: str, key: str) -> Record | None:
        """The record, or None."""

    @abstractmethod
    async def get_many(self, partition: str, collection: str, keys: Iterable[str]) -> Sequence[Record | None]:
        """One answer per key, in the order of the keys, all of the same moment."""

    @abstractmethod
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        """A page of records. Raises NoIndex when no declared index covers the query."""

    async def scan(
        self, partition: str, query: Query, *, limit: int | None = None, page: int = 200
    ) -> AsyncIterator[Record]:
        """The first ``limit`` records of the query (None: all), read page by page.

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
        """How many records match: exact where a counter is declared, otherwise counted up to ``cap``."""

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
        """Entries with after < seq < before, oldest first, or newest first with ``backward``.

        A page stops at ``limit`` or when it holds ``max_bytes``, but has at least one entry if there is one. ``after``
        below the floor raises LogTrimmed; None starts at the floor.
        """

    @abstractmethod
    async def log_state(self, partition: str, log: str, stream: str) -> LogState:
        """Head and floor; (0, 0) of a stream that was never written."""

    @abstractmethod
    async def seq_of(self, partition: str, log: str, stream: str, dedupe: str) -> int | None:
        """The seq of the entry with this dedupe key; None when there is none, or it was trimmed."""

    @abstractmethod
    def tail(self, partition: str, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        """The entries after this seq, and then each new one as it is committed, without end."""

    # ------------------------------------------------------------------------------------------------------- work

    @abstractmethod
    async def claim(
        self, queue: str, worker: str, *, limit: int = 1, lease_seconds: float = LEASE_SECONDS
    ) -> Sequence[Claim]:
        """Take up to ``limit`` ready items for this worker incarnation, and renew its lease."""

    @abstractmethod
    async def heartbeat(self, worker: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Renew the lease of everything this worker holds."""

    @abstractmethod
    async def retire(self, worker: str) -> int:
        """Release everything this worker holds and forget it; answers how many items that were."""

    @abstractmethod
    async def work(self, partition: str, queue: str, key: str) -> WorkItem | None:
        """The work item, or None."""

    @abstractmethod
    async def list_work(
        self, partition: str, queue: str, *, state: WorkState, limit: int = 50, cursor: str | None = None
    ) -> WorkPage:
        """The items of a queue in this state, by key."""

    @abstractmethod
    async def count_work(self, queues: Sequence[str]) -> WorkCounts:
        """Count the items of these queues in all partitions. The cost does not depend on what else is stored."""

    # ------------------------------------------------------------------------------------------------------ blobs

    @abstractmethod
    async def stage_blob(self, partition: str, source: BlobSource, *, keep_seconds: float = STAGED_SECONDS) -> Blob:
        """Write bytes, text, a file or a stream, without holding it in memory; attach it within ``keep_seconds``."""

    @abstractmethod
    async def open_blob(self, partition: str, digest: str) -> BlobReader:
        """A reader of the blob, staged or committed. Raises BlobNotFound."""

    # ------------------------------------------------------------------------------------------------------ hints

    @abstractmethod
    def watch(self, topic: Topic, then: Callable[[], None] | None = None) -> Watch:
        """Return a watch that is woken by every append to its stream, every drop of it, or work ready in its queue.

        Enter it before reading. The commits of other processes wake it too; when a notification is lost, the engine's
        own poll wakes it within seconds, so a reader of a log needs no poll. Delayed items and expired leases of a
        queue wake nothing. ``then`` is called at each wake, in the event loop.
        """
