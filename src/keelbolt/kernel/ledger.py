"""The state in which an engine decides commits: the current state of every key that they touch, and the changes.

An engine loads the keys that `wanted_by` returns, calls `judge` for each commit in call order, and then saves the
difference between ``changed_*`` (the state before the batch) and the ledger (the state after it). A key that several
commits of a batch write is saved once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.declarations import CheckedCollection
from keelbolt.kernel.hints import Topic
from keelbolt.kernel.logs import Append, Drop, Head, Start, Trim
from keelbolt.kernel.records import Fields, Take
from keelbolt.kernel.scope import Scope
from keelbolt.kernel.work import Bury, Claim, Complete, Enqueue, Fence, Release, Remove, Retry, WorkItem, WorkState

Key = tuple[str, str, str]  # partition, family, name


class RecordState(Struct):
    """``body`` is None if it is stored, unchanged and not loaded. ``id`` and ``text`` are for the engine."""

    version: int
    fields: Fields
    expires_at: int | None
    body: bytes | None
    id: int = 0
    text: str | None = None  # the fields in their stored form
    encoded: tuple[CheckedCollection, list[bytes], list[bytes]] | None = (
        None  # the record's index entries and counter groups
    )


class StreamState(Struct, gc=False):
    id: int
    head: int
    floor: int


class WorkRow(Struct, gc=False):
    """``again_at`` is the ready time of an item that was enqueued again while held. Times are the engine's."""

    state: WorkState
    lane: str
    priority: int
    ready_at: int
    attempt: int
    max_attempts: int
    fence: int = 0
    holder: str | None = None
    again_at: int | None = None
    reason: str | None = None


class NewEntry(NamedTuple):
    stream: int
    seq: int
    kind: str
    data: bytes
    at: int
    dedupe: str | None


new_entry = partial(tuple.__new__, NewEntry)
"""Make a NewEntry from a tuple. NewEntry() takes three times as long, and a stream makes thousands."""


@dataclass(slots=True)
class Ledger:
    """Known states (None: known to be absent), and the changes of this batch."""

    records: dict[Key, RecordState | None] = field(default_factory=dict)
    streams: dict[Key, StreamState | None] = field(default_factory=dict)
    dedupes: dict[tuple[int, str], int] = field(default_factory=dict)
    work: dict[Key, WorkRow | None] = field(default_factory=dict)
    blobs: dict[tuple[str, str], bool] = field(default_factory=dict)
    last_stream: int = 0
    last_fence: int = 0

    changed_records: dict[Key, RecordState | None] = field(default_factory=dict)
    changed_streams: dict[Key, StreamState | None] = field(default_factory=dict)
    changed_work: dict[Key, WorkRow | None] = field(default_factory=dict)
    entries: list[NewEntry] = field(default_factory=list)
    trims: list[tuple[int, int]] = field(default_factory=list)  # stream, through
    drops: list[int] = field(default_factory=list)
    holdings: dict[tuple[str, str, str], bool] = field(default_factory=dict)  # partition, digest, holder: held?
    workers: set[str] = field(default_factory=set)  # workers that claimed by Enqueue, which proves that they are alive
    topics: set[Topic] = field(default_factory=set)

    def put_record(self, key: Key, new: RecordState | None) -> None:
        if key not in self.changed_records:
            self.changed_records[key] = self.records.get(key)
        self.records[key] = new

    def put_stream(self, key: Key, new: StreamState | None) -> None:
        if key not in self.changed_streams:
            self.changed_streams[key] = self.streams.get(key)
        self.streams[key] = new

    def put_work(self, key: Key, new: WorkRow | None) -> None:
        if key not in self.changed_work:
            self.changed_work[key] = self.work.get(key)
        self.work[key] = new

    def next_fence(self) -> int:
        self.last_fence += 1
        return self.last_fence

    def next_stream(self) -> int:
        self.last_stream += 1
        return self.last_stream

    def settle(self) -> None:
        """Clear the changes after they were saved."""
        self.changed_records.clear()
        self.changed_streams.clear()
        self.changed_work.clear()
        self.entries.clear()
        self.trims.clear()
        self.drops.clear()
        self.holdings.clear()
        self.workers.clear()
        self.topics.clear()


def work_item(key: Key, row: WorkRow, *, now: int) -> WorkItem:
    """Return a row as a work item for readers."""
    return WorkItem(
        *key,
        state=row.state,
        lane=row.lane,
        priority=row.priority,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        fence=row.fence,
        holder=row.holder,
        ready_in=(row.ready_at - now) / 1_000_000,
        reason=row.reason,
    )


def claimed(scope: Scope, key: Key, row: WorkRow) -> Claim:
    """Return a held row as a claim for its holder."""
    return Claim(
        scope,
        *key[1:],
        fence=row.fence,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        lane=row.lane,
        priority=row.priority,
    )


# Engines store a waiting item as "ready" or "later", so that a claim finds the ready ones by an index.

_SEEN: dict[str, WorkState] = {
    "ready": "waiting",
    "later": "waiting",
    "waiting": "waiting",
    "held": "held",
    "dead": "dead",
}


def work_state(stored: str) -> WorkState:
    """Return the public state of a stored state; a damaged value is returned unchanged."""
    return _SEEN.get(stored, stored)  # type: ignore[arg-type]


def stored_state(state: WorkState, ready_at: int, now: int) -> str:
    """Return the stored form of a state."""
    if state == "waiting":
        return "ready" if ready_at <= now else "later"
    return state


def oldest_ready(rows: Iterable[tuple[str, int]], *, now: int) -> dict[str, float]:
    """Return the longest wait of each queue in seconds, from (queue, ready_at) of waiting items that are ready."""
    oldest: dict[str, float] = {}
    for queue, ready_at in rows:
        if ready_at <= now:
            oldest[queue] = max(oldest.get(queue, 0.0), (now - ready_at) / 1_000_000)
    return oldest


def work_counts(rows: Iterable[tuple[str, str, int]]) -> dict[str, dict[WorkState, int]]:
    """Count the items of each queue by state, from (queue, state, count); states may be in stored form."""
    counts: dict[str, dict[WorkState, int]] = {}
    for queue, stored, count in rows:
        states = counts.setdefault(queue, {"waiting": 0, "held": 0, "dead": 0})
        states[_SEEN[stored]] += count
    return counts


# ---------------------------------------------------------------------------------------------------------- needed keys


_LOGS = frozenset((Append, Start, Trim, Drop, Head))
_WORK = frozenset((Enqueue, Complete, Release, Retry, Bury, Remove, Fence))
_BLOBS = frozenset((Attach, Detach))


@dataclass(slots=True)
class NeededKeys:
    """Each key once, in the order of the operations; ``takes`` are records whose bodies are needed too."""

    records: dict[Key, None] = field(default_factory=dict)
    takes: dict[Key, None] = field(default_factory=dict)
    streams: dict[Key, None] = field(default_factory=dict)
    work: dict[Key, None] = field(default_factory=dict)
    blobs: dict[tuple[str, str], None] = field(default_factory=dict)
    appends: list[tuple[Key, Append]] = field(default_factory=list)

    def dedupes(self, ledger: Ledger) -> dict[tuple[int, str], None]:
        """Return (stream id, dedupe key) of the entries to append to existing streams. Load the streams first."""
        return {
            (stream.id, draft.dedupe): None
            for key, append in self.appends
            if (stream := ledger.streams[key]) is not None
            for draft in append.entries
            if draft.dedupe is not None
        }


def wanted_by(commits: Iterable[tuple[str, Sequence[Operation]]], ledger: Ledger) -> NeededKeys:
    """Return the keys that these commits touch and the ledger does not have.

    Work items and blobs are always loaded, because others change them.
    """
    wanted = NeededKeys()
    for partition, operations in commits:
        for operation in operations:
            kind = type(operation)
            if kind in _LOGS:
                key = (partition, operation.log, operation.stream)  # type: ignore[union-attr]
                if key not in ledger.streams:
                    wanted.streams[key] = None
                if kind is Append and any(draft.dedupe is not None for draft in operation.entries):  # type: ignore[union-attr]
                    wanted.appends.append((key, operation))  # type: ignore[arg-type]
            elif kind in _WORK:
                wanted.work[partition, operation.queue, operation.key] = None  # type: ignore[union-attr]
            elif kind in _BLOBS:
                wanted.blobs[partition, operation.digest] = None  # type: ignore[union-attr]
            else:
                key = (partition, operation.collection, operation.key)  # type: ignore[union-attr]
                if key not in ledger.records:
                    wanted.records[key] = None
                if kind is Take:
                    wanted.takes[key] = None
    return wanted
