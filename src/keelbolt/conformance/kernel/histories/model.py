"""A small model of the contract; results of an engine are compared with it.

It shares no code with the engines. Times are only *now* and *later*: an item is ready or not,
a lease runs or is over. It does not choose what a claim serves; it judges what an engine chose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.kernel.subject import ANY
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Operation, Outcome
from keelbolt.kernel.logs import Append, Drop, Head, Trim
from keelbolt.kernel.records import (
    Absent,
    Delete,
    FieldIn,
    FieldNotIn,
    Fields,
    Insert,
    Patch,
    Present,
    Put,
    Query,
    Record,
    Replace,
    Take,
    Version,
)
from keelbolt.kernel.work import Bury, Claim, Complete, Enqueue, Fence, Release, Remove, Retry

Key = tuple[str, str, str]
Failure = tuple[int, str, Any]  # index of the operation, reason, stored value


@dataclass(frozen=True, slots=True)
class ModelStream:
    floor: int = 0
    entries: tuple[tuple[str, bytes], ...] = ()  # after the floor
    dedupes: tuple[tuple[str, int], ...] = ()

    @property
    def head(self) -> int:
        return self.floor + len(self.entries)


@dataclass(frozen=True, slots=True)
class ModelItem:
    state: Literal["waiting", "held", "dead"]
    lane: str
    priority: int
    max_attempts: int
    ready: bool
    since: int  # the step at which it became ready
    attempt: int = 0
    holder: str | None = None
    nudged: bool = False  # enqueued while held: waits again when it is completed
    nudged_since: int | None = None  # ... the step at which it is ready again; None: later
    reason: str | None = None


@dataclass(slots=True)
class EngineModel:
    records: dict[Key, Record] = field(default_factory=dict)
    streams: dict[Key, ModelStream] = field(default_factory=dict)
    items: dict[Key, ModelItem] = field(default_factory=dict)
    fences: Counter[Key] = field(default_factory=Counter)  # the last fence of each item, never removed
    blobs: set[tuple[str, str]] = field(default_factory=set)
    holders: set[tuple[str, str, str]] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)  # workers whose lease has ended
    step: int = 0

    # ------------------------------------------------------------------------------------------------------ commit

    def failures(self, partition: str, operations: Sequence[Operation]) -> list[Failure]:
        """Every check of the commit that fails now."""
        found = ((number, self._check(partition, operation)) for number, operation in enumerate(operations))
        return [(number, *failure) for number, failure in found if failure is not None]

    def _check(self, p: str, o: Operation) -> tuple[str, Any] | None:
        match o:
            case Insert() | Absent():
                record = self.records.get((p, o.collection, o.key))
                return ("absent", record.version) if record else None
            case Take() | Present():
                return None if (p, o.collection, o.key) in self.records else ("present", 0)
            case FieldIn() | FieldNotIn():
                record = self.records.get((p, o.collection, o.key))
                if record is None:
                    return "present", 0
                value = record.fields.get(o.field)
                return None if (value in o.values) == isinstance(o, FieldIn) else ("field", value)
            case Version() | Replace() | Patch() | Delete():
                record = self.records.get((p, o.collection, o.key))
                version = record.version if record else 0
                if o.version is None:
                    return ("present", 0) if isinstance(o, Patch) and not record else None
                return None if version == o.version else ("version", version)
            case Head():
                head = self.streams.get((p, o.log, o.stream), ModelStream()).head
                return None if head == o.seq else ("head", head)
            case Fence() | Complete() | Release() | Retry() | Bury():
                item = self.items.get((p, o.queue, o.key))
                if item is None or item.state != "held":
                    return "fence", ANY if item else 0
                fence = self.fences[p, o.queue, o.key]
                return None if fence == o.fence else ("fence", fence)
            case Enqueue():
                item = self.items.get((p, o.queue, o.key))
                if o.worker is not None and item is not None and item.state == "held":
                    return "held", self.fences[p, o.queue, o.key]
                return None
            case Attach():
                return None if (p, o.digest) in self.blobs else ("blob", None)
            case _:
                return None

    def commit(self, partition: str, operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> None:
        """Apply this commit and compare the receipt of the engine."""
        for operation, outcome in zip(operations, outcomes, strict=True):
            wanted = self._write(partition, operation, outcome)
            equal(outcome, wanted, f"the outcome of {operation}")

    def _write(self, p: str, o: Operation, outcome: Outcome) -> Outcome:
        match o:
            case Insert() | Put() | Replace():
                return self._put(p, o.collection, o.key, o.body, o.fields)
            case Patch():
                record = self.records[p, o.collection, o.key]
                return self._put(p, o.collection, o.key, record.body, {**record.fields, **o.fields})
            case Delete():
                self.records.pop((p, o.collection, o.key), None)
                return 0
            case Take():
                return self.records.pop((p, o.collection, o.key))
            case Append():
                return self._append((p, o.log, o.stream), o)
            case Trim():
                self._trim((p, o.log, o.stream), o.through)
            case Drop():
                self.streams.pop((p, o.log, o.stream), None)
            case Enqueue():
                return self._enqueue((p, o.queue, o.key), o, outcome)
            case Complete() | Release() | Retry() | Bury() | Remove():
                return self._change((p, o.queue, o.key), o)
            case Attach():
                self.holders.add((p, o.digest, o.holder))
            case Detach():
                self.holders.discard((p, o.digest, o.holder))
            case _:
                pass
        return None

    # ----------------------------------------------------------------------------------------------------- records

    def _put(self, p: str, collection: str, key: str, body: bytes, fields: Fields) -> int:
        old = self.records.get((p, collection, key))
        version = old.version + 1 if old else 1
        given = {name: value for name, value in fields.items() if value is not None}
        self.records[p, collection, key] = Record(collection, key, version, body, given)
        return version

    def find(self, partition: str, query: Query) -> list[Record]:
        """The matching records, unordered."""
        mine = [record for (p, c, _), record in self.records.items() if (p, c) == (partition, query.collection)]
        return [record for record in mine if _matches(record, query)]

    # -------------------------------------------------------------------------------------------------------- logs

    def _append(self, key: Key, append: Append) -> tuple[int, ...]:
        stream = self.streams.get(key, ModelStream())
        seqs = []
        for draft in append.entries:
            known = dict(stream.dedupes).get(draft.dedupe or "")
            if known is not None:
                seqs.append(known)
                continue
            seq = stream.head + 1
            dedupes = stream.dedupes if draft.dedupe is None else (*stream.dedupes, (draft.dedupe, seq))
            stream = ModelStream(stream.floor, (*stream.entries, (draft.kind, draft.data)), dedupes)
            seqs.append(seq)
        self.streams[key] = stream
        return tuple(seqs)

    def _trim(self, key: Key, through: int) -> None:
        stream = self.streams.get(key)
        if stream is not None:
            floor = max(stream.floor, min(through, stream.head))
            dedupes = tuple((name, seq) for name, seq in stream.dedupes if seq > floor)
            self.streams[key] = ModelStream(floor, stream.entries[floor - stream.floor :], dedupes)

    # -------------------------------------------------------------------------------------------------------- work

    def _enqueue(self, key: Key, o: Enqueue, outcome: Outcome) -> int:
        ready = o.ready_in == 0
        new = ModelItem("waiting", o.lane, o.priority, o.max_attempts, ready, self.step)
        old = self.items.get(key)
        if old is not None and old.state == "waiting":
            new = replace(new, attempt=old.attempt, reason=old.reason)
            if old.ready:
                new = replace(new, ready=True, since=old.since)
        elif old is not None and old.state == "held":
            since = self.step if ready and old.nudged_since is None else old.nudged_since
            new = replace(old, lane=o.lane, priority=o.priority, max_attempts=o.max_attempts)
            new = replace(new, nudged=True, nudged_since=since)
        if o.worker is None:
            self.items[key] = new
            return 0
        self.expired.discard(o.worker)  # a worker without a running lease gets one
        self.items[key] = replace(new, state="held", holder=o.worker, attempt=new.attempt + 1)
        return self._fenced(key, outcome)

    def _fenced(self, key: Key, fence: Outcome) -> int:
        """Check that the fence is greater than all earlier ones."""
        assert isinstance(fence, int)
        expect(fence > self.fences[key], f"the fence {fence} of {key} is not greater than {self.fences[key]}")
        self.fences[key] = fence
        return fence

    def _change(self, key: Key, o: Complete | Release | Retry | Bury | Remove) -> int | None:
        item = self.items.get(key)
        if isinstance(o, Remove) or item is None:
            self.items.pop(key, None)
            return None
        now = isinstance(o, Release | Retry) and o.ready_in == 0
        free = replace(item, state="waiting", holder=None, nudged=False, nudged_since=None, reason=None)
        free = replace(free, ready=now, since=self.step)
        if isinstance(o, Complete | Release) and item.nudged_since is not None:
            free = replace(free, ready=True, since=item.nudged_since)
        match o:
            case Complete() if not item.nudged:
                del self.items[key]
            case Complete():
                self.items[key] = replace(free, attempt=0)
            case Release():
                self.items[key] = replace(free, attempt=item.attempt - 1)
            case Retry() if item.attempt < item.max_attempts:
                self.items[key] = replace(free, reason=o.reason)
                return 0
            case Retry() | Bury():
                self.items[key] = replace(free, state="dead", ready=False, reason=o.reason)
                return 1 if isinstance(o, Retry) else None
        return None

    def retire(self, worker: str) -> int:
        held = [key for key, item in self.items.items() if item.holder == worker]
        for key in held:
            partition, queue, name = key
            self._change(key, Release(queue, name, self.fences[partition, queue, name]))
        return len(held)

    def claim(self, queue: str, worker: str, limit: int, claims: Sequence[Claim]) -> None:
        """Check the result of one claim without concurrent claims, and apply it."""
        self.expired.discard(worker)
        of_queue = {key: item for key, item in self.items.items() if key[1] == queue}
        orphans = [key for key, item in of_queue.items() if item.state == "held" and item.holder in self.expired]
        ready = [key for key, item in of_queue.items() if item.state == "waiting" and item.ready]
        keys = [(claim.partition, claim.queue, claim.key) for claim in claims]
        equal(len(keys), min(limit, len(orphans) + len(ready)), "the number of claimed items")
        first = min(len(orphans), len(keys))
        expect(set(keys[:first]) <= set(orphans), f"{keys} were served, but {orphans} are items of expired leases")
        self._in_turn(keys[first:], ready)
        for key, claim in zip(keys, claims, strict=True):
            self.claimed(key, worker, claim)

    def _in_turn(self, keys: list[Key], ready: list[Key]) -> None:
        served = Counter(self.items[key].lane for key in keys if key in self.items)
        left = [key for key in ready if key not in keys]
        for key in left:
            item = self.items[key]
            for lane, count in served.items():
                fair = lane == item.lane or count <= served[item.lane] + 1
                expect(fair, f"lane {lane} was served {count} times, lane {item.lane} {served[item.lane]}, {key} waits")
            for other in keys:
                mine = self.items[other]
                if (other[0], mine.lane) == (key[0], item.lane):
                    ahead = (-mine.priority, mine.since) <= (-item.priority, item.since)
                    expect(ahead, f"{other} {mine} was served before {key} {item}")

    def claimed(self, key: Key, worker: str, claim: Claim) -> None:
        """Apply a claim of this item: it was free, or its holder's lease has ended."""
        item = self.items.get(key)
        free = item is not None and (
            (item.state == "waiting" and item.ready) or (item.state == "held" and item.holder in self.expired)
        )
        expect(free, f"{worker} claimed {key}, which is {item}")
        assert item is not None
        held = replace(item, state="held", holder=worker, attempt=item.attempt + 1)
        self._fenced(key, claim.fence)
        reported = (claim.attempt, claim.max_attempts, claim.lane, claim.priority)
        equal(
            reported, (held.attempt, held.max_attempts, held.lane, held.priority), f"the values of the claim of {key}"
        )
        self.items[key] = held


def _matches(record: Record, query: Query) -> bool:
    value: Any = record.fields.get(query.order) if query.order else record.key
    return (
        all(record.fields.get(name) == wanted for name, wanted in query.equal.items())
        and (query.since is None or (value is not None and value >= query.since))
        and (query.until is None or value is None or value < query.until)
    )
