"""Claims, leases and sweeps, each in a short transaction of its own beside the committer."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.storage.judge import MICROSECONDS
from holdfast.storage.postgres.connection import Connection
from holdfast.storage.work import Claim

PROMOTED = 1000  # items that leave the waiting room in one claim
BATCHES_KEPT_SECONDS = 600.0


async def renew(connection: Connection, sql: dict[str, str], worker: str, lease_seconds: float) -> int:
    """Renew the lease; answers the database's time."""
    return int(await connection.fetchval(sql["renew_lease"], worker, int(lease_seconds * MICROSECONDS)))


async def claim(
    connection: Connection, sql: dict[str, str], queue: str, worker: str, *, limit: int, lease_seconds: float
) -> Sequence[Claim]:
    """Expired leases first, then one item of each lane in turn, from the lane after the one that was served last."""
    now = await renew(connection, sql, worker, lease_seconds)
    claims = [Claim(*row) for row in await connection.fetch(sql["claim_expired"], queue, worker, limit, now)]
    if len(claims) >= limit:
        return claims
    await connection.execute(sql["promote_later"], queue, now, PROMOTED)
    served = await connection.fetchval(sql["last_lane"], f"lane/{queue}")
    lane = served or ""
    for _ in range(limit - len(claims)):
        row = await connection.fetchrow(sql["claim_next"], queue, worker, lane)
        if row is None:
            row = await connection.fetchrow(sql["claim_first"], queue, worker)
        if row is None:
            break
        claims.append(Claim(*row))
        lane = claims[-1].lane
    if lane != (served or ""):
        await connection.execute(sql["set_meta"], f"lane/{queue}", lane)
    return claims


async def retire(connection: Connection, sql: dict[str, str], worker: str) -> list[str]:
    """Release everything a worker holds; answers the queue of each item."""
    await connection.fetchval(sql["lock_held_by"], worker)
    rows = await connection.fetch(sql["release_held_by"], worker)
    await connection.execute(sql["delete_worker"], worker)
    return [row[0] for row in rows]


async def sweep_blobs_and_workers(connection: Connection, sql: dict[str, str], limit: int) -> tuple[int, int]:
    now = await connection.fetchval(sql["now"])
    blobs = [row[0] for row in await connection.fetch(sql["expired_blobs"], now, limit)]
    await connection.execute(sql["delete_blob"], blobs)
    workers = await connection.fetch(sql["delete_idle_workers"], now, limit)
    await connection.execute(sql["delete_old_batches"], now - int(BATCHES_KEPT_SECONDS * MICROSECONDS))
    return len(blobs), len(workers)
