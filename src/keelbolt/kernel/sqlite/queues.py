"""Claims, leases and sweeps: jobs of the writer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from keelbolt.kernel.blobs import CHUNK_BYTES
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.contract import Swept, Wiped
from keelbolt.kernel.declarations import IndexChanges, load_fields
from keelbolt.kernel.hints import QueueTopic
from keelbolt.kernel.judge import MICROSECONDS, RENEWED, judge
from keelbolt.kernel.ledger import Key, WorkRow
from keelbolt.kernel.logs import Drop
from keelbolt.kernel.records import Record
from keelbolt.kernel.sqlite.connection import SQL
from keelbolt.kernel.sqlite.rows import SqliteRows, work_row, work_values
from keelbolt.kernel.sqlite.worker_locks import Dead
from keelbolt.kernel.sqlite.writer import WriteJob
from keelbolt.kernel.work import PartitionTurns, Remove

PROMOTED = 1000  # delayed items made ready in one claim
REMOVED_CHUNKS = 4  # in one transaction
WIPED_ENTRIES = 1000  # as long as one record does not have more


def renew(turn: WriteJob, worker: str, lease_seconds: float) -> None:
    if turn.book.locks is not None:
        turn.book.locks.hold(worker)
    until = turn.now + int(lease_seconds * MICROSECONDS)
    turn.connection.execute(SQL["renew_lease"], (worker, until))


def claim(
    turn: WriteJob, served: PartitionTurns, queue: str, worker: str, limit: int, lease_seconds: float
) -> tuple[list[tuple[Key, WorkRow]], Dead]:
    """Claim orphans first, so that a backlog never starves them; then fairness keys in turn, and their partitions.

    Also return the dead workers whose leases this ended; the caller removes their lock files after the commit.
    """
    dead = _end_leases_of_the_dead(turn)
    lease = int(lease_seconds * MICROSECONDS)
    if turn.book.locks is not None:
        turn.book.locks.hold(worker)
    turn.connection.execute(SQL["renew_claim"], (worker, turn.now + lease, int(lease * RENEWED)))
    claims = [_hold(turn, row, worker) for row in _expired(turn, queue, limit)]
    if len(claims) < limit:
        for row in _ready(turn, served, queue, limit - len(claims)):
            claims.append(_hold(turn, row, worker))  # noqa: PERF401 - each one must be held before the next is selected
    return claims, dead


def _end_leases_of_the_dead(turn: WriteJob) -> Dead:
    """End the leases of workers whose lock is free: they will not renew them.

    The locks are checked within the transaction: a worker that starts again under the same name locks first and renews
    afterwards.
    """
    dead = turn.book.locks.dead() if turn.book.locks is not None else Dead()
    for worker in dead.workers:
        turn.connection.execute(SQL["end_lease"], (turn.now, worker, turn.now))
        for (queue,) in turn.connection.execute(SQL["queues_held_by"], (worker,)).fetchall():
            turn.topics.add(QueueTopic(queue))
    return dead


def _expired(turn: WriteJob, queue: str, limit: int) -> list[Any]:
    rows: list[Any] = []
    for (worker,) in turn.connection.execute(SQL["expired_workers"], (turn.now,)).fetchall():
        rows += turn.connection.execute(SQL["held_by"], (worker, queue, limit - len(rows))).fetchall()
        if len(rows) >= limit:
            break
    return rows


def _ready(turn: WriteJob, partitions: PartitionTurns, queue: str, limit: int) -> Iterator[Any]:
    """Yield one item of each fairness key in turn, after the last one served; its partitions take turns too."""
    connection = turn.connection
    connection.execute(SQL["promote_later"], (queue, turn.now, PROMOTED))
    served = connection.execute(SQL["last_lane"], (f"lane/{queue}",)).fetchone()
    lane: str = served[0] if served else ""
    for _ in range(limit):
        row = connection.execute(SQL["next_ready"], (queue, lane)).fetchone()
        if row is None:
            row = connection.execute(SQL["first_ready"], (queue,)).fetchone()
        if row is None:
            break
        lane = row[4]
        last = partitions.last(queue, lane)
        if last:
            row = connection.execute(SQL["next_in_lane"], (queue, lane, last)).fetchone() or row
        partitions.note(queue, lane, row[0])
        yield row
    if not served or lane != served[0]:
        connection.execute(SQL["set_meta"], (f"lane/{queue}", lane))


def _hold(turn: WriteJob, row: Sequence[Any], worker: str) -> tuple[Key, WorkRow]:
    key = (row[0], row[1], row[2])
    waiting = work_row(row)
    fence = turn.book.ledger.next_fence()
    held = replace(waiting, state="held", holder=worker, attempt=waiting.attempt + 1, fence=fence)
    turn.connection.execute(SQL["put_work"], work_values(key, held, now=turn.now))
    turn.book.ledger.work[key] = held
    return key, held


def retire(turn: WriteJob, worker: str) -> int:
    rows = turn.connection.execute(SQL["held_anywhere_by"], (worker,)).fetchall()
    ledger = turn.book.ledger
    for row in rows:
        key = (row[0], row[1], row[2])
        held = work_row(row)
        ledger.work[key] = held
        ready_at = turn.now if held.again_at is None else min(turn.now, held.again_at)
        freed = replace(held, state="waiting", holder=None, again_at=None, ready_at=ready_at, attempt=held.attempt - 1)
        ledger.put_work(key, freed)
        turn.topics.add(QueueTopic(key[1]))
    turn.connection.execute(SQL["delete_worker"], (worker,))
    return len(rows)


def wipe(turn: WriteJob, partition: str, family: Wiped, limit: int) -> int:
    """Remove the first records of a collection in this partition, with everything that `Wiped` names.

    It removes at most ``limit`` records, and fewer if their logs are long: other commits wait meanwhile.
    """
    book, connection = turn.book, turn.connection
    bodies = family.blobs is not None
    query = SQL["first_records_with_bodies" if bodies else "first_records"]
    rows = connection.execute(query, (partition, family.collection, limit)).fetchall()
    rows = rows[: _with_few_entries(book, [[(partition, log, key) for log in family.logs] for key, *_ in rows])]
    place = book.catalog.shapes[family.collection]
    changes = IndexChanges[int]()
    operations: list[Operation] = []
    for key, _, version, text, body in rows:
        fields = load_fields(text)
        changes.remove(place, partition, key, fields)
        book.ledger.records.pop((partition, family.collection, key), None)
        operations.extend(Drop(log, key) for log in family.logs)
        operations.extend(Remove(queue, key) for queue in family.queues)
        if family.blobs is not None:
            operations += family.blobs(Record(family.collection, key, version, body, fields))
    connection.executemany(SQL["delete_record"], [(number,) for _, number, *_ in rows])
    connection.executemany(SQL["delete_index"], changes.removed)
    connection.executemany(SQL["add_to_counter"], changes.counted())
    if operations:
        book.load([(partition, operations)])
        judge(book.ledger, partition, tuple(operations), now=turn.now, at=turn.now)
    return len(rows)


def _with_few_entries(book: SqliteRows, logs: list[list[Key]]) -> int:
    """Return how many of these records have up to WIPED_ENTRIES log entries together, given the logs of each."""
    book.load_streams(key for keys in logs for key in keys)
    entries = 0
    for number, keys in enumerate(logs, start=1):
        entries += sum(stream.head - stream.floor for key in keys if (stream := book.ledger.streams[key]) is not None)
        if entries >= WIPED_ENTRIES:
            return number
    return len(logs)


def sweep(turn: WriteJob, limit: int) -> tuple[Swept, list[int]]:
    """Remove expired data. The bytes of blobs are left: also return the ids for `remove_blobs`."""
    connection, ledger = turn.connection, turn.book.ledger
    records = connection.execute(SQL["expired_records"], (turn.now, limit)).fetchall()
    turn.book.load_keys(records)
    for key in records:
        ledger.put_record(tuple(key), None)
    blobs = connection.execute(SQL["expired_blobs"], (turn.now, limit)).fetchall()
    for number, partition, digest in blobs:
        connection.execute(SQL["unname_blob"], (number,))
        ledger.blobs[partition, digest] = False
    workers = connection.execute(SQL["idle_workers"], (turn.now, limit)).fetchall()
    connection.executemany(SQL["delete_worker"], workers)
    if turn.book.locks is not None:
        for (worker,) in workers:
            turn.book.locks.release(worker)
    return Swept(len(records), len(blobs), len(workers)), [number for number, *_ in blobs]


def remove_blobs(turn: WriteJob, numbers: list[int]) -> list[int]:
    """Remove the first few chunks of these unnamed blobs; return the blobs that are left.

    Deleted bytes are overwritten, so each chunk costs as much as its insertion, and other commits wait meanwhile.
    """
    left = REMOVED_CHUNKS
    for done, number in enumerate(numbers):
        removed = len(turn.connection.execute(SQL["delete_chunks"], (number, left)).fetchall())
        turn.book.rows += removed * (CHUNK_BYTES // 4096)
        left -= removed
        if left == 0:
            return numbers[done:]
        turn.connection.execute(SQL["delete_blob"], (number,))
    return []
