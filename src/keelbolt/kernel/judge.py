"""Decides commits. Pure: takes a ledger and the time, returns outcomes or raises a refusal; no engine, no I/O.

All checks of a commit run against the ledger before its first write. So a refused commit changes nothing, and the next
commit sees the effects of all earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from keelbolt.errors import CommitRefused
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Operation, Outcome, RecordWrite
from keelbolt.kernel.hints import QueueTopic, log_topic
from keelbolt.kernel.ledger import Ledger, RecordState, StreamState, WorkRow, new_entry
from keelbolt.kernel.logs import Append, Drop, Head, Start, Trim
from keelbolt.kernel.records import (
    Absent,
    Delete,
    Expire,
    FieldIn,
    FieldNotIn,
    Insert,
    Patch,
    Present,
    Put,
    Record,
    Replace,
    Restore,
    Take,
    Version,
)
from keelbolt.kernel.work import Bury, Complete, Enqueue, Fence, Release, Remove, Retry

MICROSECONDS = 1_000_000
RENEWED = 0.1  # share of a lease: a claim renews a lease only if its end differs by more than this from the new end

RecordOperation = Version | Absent | Present | FieldIn | FieldNotIn | RecordWrite
FenceOperation = Fence | Complete | Release | Retry | Bury


def judge(
    ledger: Ledger, partition: str, operations: tuple[Operation, ...], *, now: int, at: int
) -> tuple[Outcome, ...]:
    """Apply one commit to the ledger, or raise CommitRefused and leave the ledger unchanged.

    ``now`` is the engine's time, used for leases, expiry and readiness; ``at`` is the wall clock, for display.
    """
    for operation in operations:
        check = _CHECKS.get(type(operation))
        if check is not None:
            check(ledger, partition, operation, now)
    return tuple([_WRITES[type(operation)](ledger, partition, operation, now, at) for operation in operations])


# --------------------------------------------------------------------------------------------------------- records


def _record(ledger: Ledger, partition: str, operation: RecordOperation, now: int) -> RecordState | None:
    state = ledger.records.get((partition, operation.collection, operation.key))
    if state is not None and state.expires_at is not None and state.expires_at <= now:
        return None
    return state


def _check_version(ledger: Ledger, partition: str, operation: Version | Replace | Patch | Delete, now: int) -> None:
    state = _record(ledger, partition, operation, now)
    expected = operation.version
    if expected is None:
        if state is None and isinstance(operation, Patch):
            raise CommitRefused("present", operation, found=0)
    elif state is None or state.version != expected:
        raise CommitRefused("version", operation, found=state.version if state else 0)


def _check_absent(ledger: Ledger, partition: str, operation: Absent | Insert | Restore, now: int) -> None:
    state = _record(ledger, partition, operation, now)
    if state is not None:
        raise CommitRefused("absent", operation, found=state.version)


def _check_present(ledger: Ledger, partition: str, operation: Present | Take, now: int) -> None:
    if _record(ledger, partition, operation, now) is None:
        raise CommitRefused("present", operation, found=0)


def _check_field(ledger: Ledger, partition: str, operation: FieldIn | FieldNotIn, now: int) -> None:
    state = _record(ledger, partition, operation, now)
    if state is None:
        raise CommitRefused("present", operation, found=0)
    found = state.fields.get(operation.field)
    if (found in operation.values) is not isinstance(operation, FieldIn):
        raise CommitRefused("field", operation, found=found)


def _put(ledger: Ledger, partition: str, operation: Insert | Restore | Put | Replace, now: int, _at: int) -> int:
    key = (partition, operation.collection, operation.key)
    stored = ledger.records.get(key)
    version = operation.version if type(operation) is Restore else 1
    if stored is not None and (stored.expires_at is None or stored.expires_at > now):
        version = stored.version + 1
    seconds = operation.expires_in
    expires_at = None if seconds is None else now + int(seconds * MICROSECONDS)
    row = stored.id if stored is not None else 0
    ledger.put_record(key, RecordState(version, operation.fields, expires_at, operation.body, row))
    return version


def _patch(ledger: Ledger, partition: str, operation: Patch, _now: int, _at: int) -> int:
    key = (partition, operation.collection, operation.key)
    stored = ledger.records[key]
    assert stored is not None
    merged = {**stored.fields, **operation.fields}
    fields = {name: value for name, value in merged.items() if value is not None}
    version = stored.version + 1
    ledger.put_record(key, RecordState(version, fields, stored.expires_at, stored.body, stored.id))
    return version


def _delete(ledger: Ledger, partition: str, operation: Delete, _now: int, _at: int) -> int:
    key = (partition, operation.collection, operation.key)
    if ledger.records.get(key) is not None:
        ledger.put_record(key, None)
    return 0


def _expire(ledger: Ledger, partition: str, operation: Expire, now: int, _at: int) -> int:
    """Return 1 if the record was removed, otherwise 0."""
    key = (partition, operation.collection, operation.key)
    stored = ledger.records.get(key)
    if stored is None or stored.expires_at is None or stored.expires_at > now:
        return 0
    ledger.put_record(key, None)
    return 1


def _take(ledger: Ledger, partition: str, operation: Take, _now: int, _at: int) -> Record:
    key = (partition, operation.collection, operation.key)
    stored = ledger.records[key]
    assert stored is not None
    assert stored.body is not None, "a record that is taken must be loaded with its body"
    ledger.put_record(key, None)
    return Record(operation.collection, operation.key, stored.version, stored.body, stored.fields)


# ------------------------------------------------------------------------------------------------------------ logs


def _check_head(ledger: Ledger, partition: str, operation: Head, _now: int) -> None:
    stream = ledger.streams.get((partition, operation.log, operation.stream))
    head = stream.head if stream else 0
    if head != operation.seq:
        raise CommitRefused("head", operation, found=head)


def _check_unwritten(ledger: Ledger, partition: str, operation: Start, _now: int) -> None:
    stream = ledger.streams.get((partition, operation.log, operation.stream))
    if stream is not None and stream.head:
        raise CommitRefused("head", operation, found=stream.head)


def _start(ledger: Ledger, partition: str, operation: Start, _now: int, _at: int) -> None:
    key = (partition, operation.log, operation.stream)
    if operation.floor:
        ledger.put_stream(key, StreamState(ledger.next_stream(), operation.floor, operation.floor))


def _append(ledger: Ledger, partition: str, operation: Append, _now: int, at: int) -> tuple[int, ...]:
    key = (partition, operation.log, operation.stream)
    stream = ledger.streams.get(key) or StreamState(ledger.next_stream(), 0, 0)
    head, floor, number = stream.head, stream.floor, stream.id
    seqs = []
    for draft in operation.entries:
        dedupe = draft.dedupe
        if dedupe is not None:
            seq = ledger.dedupes.get((number, dedupe), 0)
            if seq > floor:
                seqs.append(seq)
                continue
            ledger.dedupes[number, dedupe] = head + 1
        head += 1
        seqs.append(head)
        ledger.entries.append(new_entry((number, head, draft.kind, draft.data, at, dedupe)))
    if head > stream.head:
        ledger.put_stream(key, StreamState(number, head, floor))
        ledger.topics.add(log_topic(key))
    return tuple(seqs)


def _trim(ledger: Ledger, partition: str, operation: Trim, _now: int, _at: int) -> None:
    key = (partition, operation.log, operation.stream)
    stream = ledger.streams.get(key)
    if stream is None:
        return
    floor = min(operation.through, stream.head)
    if floor > stream.floor:
        ledger.put_stream(key, StreamState(stream.id, stream.head, floor))
        ledger.trims.append((stream.id, floor))


def _drop(ledger: Ledger, partition: str, operation: Drop, _now: int, _at: int) -> None:
    key = (partition, operation.log, operation.stream)
    stream = ledger.streams.get(key)
    if stream is not None:
        ledger.put_stream(key, None)
        ledger.drops.append(stream.id)
        ledger.topics.add(log_topic(key))


# ------------------------------------------------------------------------------------------------------------ work


def _check_fence(ledger: Ledger, partition: str, operation: FenceOperation, _now: int) -> None:
    row = ledger.work.get((partition, operation.queue, operation.key))
    if row is None or row.state != "held" or row.fence != operation.fence:
        raise CommitRefused("fence", operation, found=row.fence if row else 0)


def _check_free(ledger: Ledger, partition: str, operation: Enqueue, _now: int) -> None:
    row = ledger.work.get((partition, operation.queue, operation.key))
    if operation.worker is not None and row is not None and row.state == "held":
        raise CommitRefused("held", operation, found=row.fence)


def _enqueue(ledger: Ledger, partition: str, operation: Enqueue, now: int, _at: int) -> int:
    key = (partition, operation.queue, operation.key)
    ready_at = now + int(operation.ready_in * MICROSECONDS)
    row = ledger.work.get(key)
    new = WorkRow("waiting", operation.lane, operation.priority, ready_at, 0, operation.max_attempts)
    if row is not None:
        new.fence = row.fence
        if row.state == "waiting":
            new.ready_at = min(row.ready_at, ready_at)
            new.attempt = row.attempt
            new.reason = row.reason
        elif row.state == "held":
            new.state = "held"
            new.ready_at, new.attempt, new.holder, new.reason = row.ready_at, row.attempt, row.holder, row.reason
            new.again_at = ready_at if row.again_at is None else min(row.again_at, ready_at)
    if operation.worker is not None:
        new.state = "held"
        new.holder = operation.worker
        new.attempt += 1
        new.fence = ledger.next_fence()
        ledger.workers.add(operation.worker)
    ledger.put_work(key, new)
    if new.state == "waiting":
        ledger.topics.add(QueueTopic(operation.queue))
    return new.fence if operation.worker is not None else 0


def _complete(ledger: Ledger, partition: str, operation: Complete, _now: int, _at: int) -> None:
    again_at = _held(ledger, partition, operation).again_at
    if again_at is None:
        ledger.put_work((partition, operation.queue, operation.key), None)
    else:
        _wait(ledger, partition, operation, ready_at=again_at, attempt=0)


def _release(ledger: Ledger, partition: str, operation: Release, now: int, _at: int) -> None:
    row = _held(ledger, partition, operation)
    ready_at = now + int(operation.ready_in * MICROSECONDS)
    if row.again_at is not None:
        ready_at = min(ready_at, row.again_at)
    _wait(ledger, partition, operation, ready_at=ready_at, attempt=row.attempt - 1)


def _retry(ledger: Ledger, partition: str, operation: Retry, now: int, at: int) -> int:
    row = _held(ledger, partition, operation)
    if row.attempt >= row.max_attempts:
        _bury(ledger, partition, operation, now, at)
        return 1
    ready_at = now + int(operation.ready_in * MICROSECONDS)
    _wait(ledger, partition, operation, ready_at=ready_at, attempt=row.attempt, reason=operation.reason)
    return 0


def _bury(ledger: Ledger, partition: str, operation: Bury | Retry, _now: int, _at: int) -> None:
    row = _held(ledger, partition, operation)
    dead = replace(row, state="dead", holder=None, again_at=None, reason=operation.reason)
    ledger.put_work((partition, operation.queue, operation.key), dead)


def _remove(ledger: Ledger, partition: str, operation: Remove, _now: int, _at: int) -> None:
    key = (partition, operation.queue, operation.key)
    if ledger.work.get(key) is not None:
        ledger.put_work(key, None)


def _held(ledger: Ledger, partition: str, operation: FenceOperation) -> WorkRow:
    row = ledger.work[partition, operation.queue, operation.key]
    assert row is not None
    return row


def _wait(
    ledger: Ledger,
    partition: str,
    operation: FenceOperation,
    *,
    ready_at: int,
    attempt: int,
    reason: str | None = None,
) -> None:
    row = _held(ledger, partition, operation)
    waiting = replace(
        row, state="waiting", holder=None, again_at=None, ready_at=ready_at, attempt=attempt, reason=reason
    )
    ledger.put_work((partition, operation.queue, operation.key), waiting)
    ledger.topics.add(QueueTopic(operation.queue))


# ----------------------------------------------------------------------------------------------------------- blobs


def _check_blob(ledger: Ledger, partition: str, operation: Attach, _now: int) -> None:
    if not ledger.blobs.get((partition, operation.digest)):
        raise CommitRefused("blob", operation)


def _attach(ledger: Ledger, partition: str, operation: Attach, _now: int, _at: int) -> None:
    ledger.holdings[partition, operation.digest, operation.holder] = True


def _detach(ledger: Ledger, partition: str, operation: Detach, _now: int, _at: int) -> None:
    ledger.holdings[partition, operation.digest, operation.holder] = False


def _nothing(_ledger: Ledger, _partition: str, _operation: Operation, _now: int, _at: int) -> None:
    """Do nothing: checks have no outcome."""


_CHECKS: dict[type[Operation], Callable[[Ledger, str, Any, int], None]] = {
    Version: _check_version,
    Absent: _check_absent,
    Present: _check_present,
    FieldIn: _check_field,
    FieldNotIn: _check_field,
    Insert: _check_absent,
    Restore: _check_absent,
    Replace: _check_version,
    Patch: _check_version,
    Delete: _check_version,
    Take: _check_present,
    Head: _check_head,
    Start: _check_unwritten,
    Fence: _check_fence,
    Complete: _check_fence,
    Release: _check_fence,
    Retry: _check_fence,
    Bury: _check_fence,
    Enqueue: _check_free,
    Attach: _check_blob,
}

_WRITES: dict[type[Operation], Callable[[Ledger, str, Any, int, int], Outcome]] = {
    Version: _nothing,
    Absent: _nothing,
    Present: _nothing,
    FieldIn: _nothing,
    FieldNotIn: _nothing,
    Head: _nothing,
    Fence: _nothing,
    Insert: _put,
    Restore: _put,
    Put: _put,
    Replace: _put,
    Patch: _patch,
    Delete: _delete,
    Take: _take,
    Expire: _expire,
    Append: _append,
    Start: _start,
    Trim: _trim,
    Drop: _drop,
    Enqueue: _enqueue,
    Complete: _complete,
    Release: _release,
    Retry: _retry,
    Bury: _bury,
    Remove: _remove,
    Attach: _attach,
    Detach: _detach,
}
