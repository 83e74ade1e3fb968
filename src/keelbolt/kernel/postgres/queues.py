"""Claims, leases and sweeps, each in its own short transaction, independent of the committer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from keelbolt.kernel.judge import MICROSECONDS, RENEWED
from keelbolt.kernel.postgres.connection import Connection, short
from keelbolt.kernel.scope import Scope
from keelbolt.kernel.transfer.ports import WriteBlock
from keelbolt.kernel.work import Claim, PartitionTurns

PROMOTED = 1000  # delayed items that one claim makes ready, at most
BATCHES_KEPT_SECONDS = 600.0
SWEPT_BYTES = 256 * 1024 * 1024  # of blobs in one transaction, which has a time limit


async def obey(connection: Connection, sql: dict[str, str]) -> None:
    """Raise if the store's mark forbids writes. Call it after the first write of the transaction."""
    _obey(*await connection.fetchrow(sql["get_mark"]))


def _obey(now: int, text: str | None) -> None:
    mark = WriteBlock.load(text)
    if mark is not None and (refusal := mark.refusal(now)) is not None:
        raise refusal


async def claim(
    connection: Connection,
    sql: dict[str, str],
    lock: int,
    served: PartitionTurns,
    queue: str,
    worker: str,
    *,
    limit: int,
    lease_seconds: float,
    scoped: Callable[[str], Scope],
) -> list[Claim]:
    """Claim work items: expired leases first, then fairness keys in turn, and the partitions of each in turn."""
    lease = int(lease_seconds * MICROSECONDS)
    await connection.execute(sql["share_lock"], lock)
    now, mark, renewed = await connection.fetchrow(sql["renew_claim"], worker, lease, int(lease * RENEWED))
    _obey(now, mark)
    rows = await connection.fetch(sql["claim_expired"], queue, worker, limit, now)
    if len(rows) < limit:
        await connection.execute(sql["promote_later"], queue, now, PROMOTED)
        rows += await _ready(connection, sql, served, queue, worker, limit - len(rows))
    if rows and not renewed:  # the mark was read before the transaction's first write
        await obey(connection, sql)
    return [Claim(scoped(partition), *rest) for partition, *rest in rows]


async def _ready(
    connection: Connection, sql: dict[str, str], partitions: PartitionTurns, queue: str, worker: str, limit: int
) -> list[Any]:
    """Claim one item per fairness key in turn, starting after the one served last; likewise for its partitions."""
    rows: list[Any] = []
    served = await connection.fetchval(sql["last_lane"], f"lane/{queue}") or ""
    lane = served
    while len(rows) < limit:
        lane = await connection.fetchval(sql["next_lane"], queue, lane)
        if lane is None:
            break
        last = partitions.last(queue, lane)
        row = await connection.fetchrow(sql["claim_in_lane"], queue, worker, lane, last)
        if row is None and last:
            row = await connection.fetchrow(sql["claim_in_lane"], queue, worker, lane, "")
        if row is None:
            row = await connection.fetchrow(sql["claim_any"], queue, worker)
        if row is None:
            break
        rows.append(row)
        lane = row["lane"]
        partitions.note(queue, lane, row["partition"])
    if rows and lane != served:
        await connection.execute(sql["set_meta"], f"lane/{queue}", rows[-1]["lane"])
    return rows


async def still_held(connection: Connection, sql: dict[str, str], worker: str, claims: Sequence[Claim]) -> list[Claim]:
    """Return those of the claims with an unknown COMMIT result that were in fact made."""
    places = [(claim.partition, claim.queue, short(claim.key)) for claim in claims]
    rows = await connection.fetch(sql["still_held"], *zip(*places, strict=True), worker)
    fences = {row[3] for row in rows}
    return [claim for claim in claims if claim.fence in fences]


async def retire(connection: Connection, sql: dict[str, str], lock: int, worker: str) -> list[str]:
    """Release all items that a worker holds. Return the queue of each item."""
    await connection.execute(sql["take_lock"], lock)
    await connection.fetchval(sql["lock_held_by"], worker)
    rows = await connection.fetch(sql["release_held_by"], worker)
    await connection.execute(sql["delete_worker"], worker)
    return [row[0] for row in rows]


async def sweep_blobs_and_workers(
    connection: Connection, sql: dict[str, str], lock_of: Callable[[str], int], limit: int
) -> tuple[int, int]:
    now = await connection.fetchval(sql["now"])
    found = await connection.fetch(sql["expired_blobs"], now, limit)
    before = accumulate((row[1] for row in found), initial=0)
    blobs = [row[0] for row, size in zip(found, before, strict=False) if size < SWEPT_BYTES]
    await connection.execute(sql["delete_blob"], blobs)
    await obey(connection, sql)
    idle = [row[0] for row in await connection.fetch(sql["idle_workers"], now, limit)]
    free = await connection.fetch(sql["try_worker_locks"], idle, [lock_of(worker) for worker in idle])
    workers = await connection.fetch(sql["delete_idle_workers"], now, [row[0] for row in free])
    await connection.execute(sql["delete_old_batches"], now - int(BATCHES_KEPT_SECONDS * MICROSECONDS))
    return len(blobs), len(workers)
