"""Claims, leases and sweeps, each in a short transaction of its own beside the committer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from keelbolt.storage.judge import MICROSECONDS
from keelbolt.storage.marks import Mark
from keelbolt.storage.postgres.connection import Connection, short
from keelbolt.storage.work import Claim

PROMOTED = 1000  # items that leave the waiting room in one claim
BATCHES_KEPT_SECONDS = 600.0


async def obey(connection: Connection, sql: dict[str, str]) -> bool:
    """Refuse when the store's mark says so; answers whether to note what is touched. Call it after the first write."""
    now, text = await connection.fetchrow(sql["get_mark"])
    return _obeyed(Mark.load(text), now)


def _obeyed(mark: Mark | None, now: int) -> bool:
    if mark is None:
        return False
    if (refusal := mark.refusal(now)) is not None:
        raise refusal
    return mark.follows(now)


async def touch(connection: Connection, sql: dict[str, str], kind: str, places: Iterable[tuple[str, str, str]]) -> None:
    """Note what was changed, for a copy that follows."""
    rows = [(kind, *place, False) for place in places]
    if rows:
        await connection.execute(sql["touch"], *zip(*rows, strict=True))


async def renew(connection: Connection, sql: dict[str, str], worker: str, lease_seconds: float) -> tuple[int, str]:
    """Renew the lease; answers the database's time and the store's mark."""
    row = await connection.fetchrow(sql["renew_lease"], worker, int(lease_seconds * MICROSECONDS))
    return row[0], row[1]


async def claim(
    connection: Connection, sql: dict[str, str], queue: str, worker: str, *, limit: int, lease_seconds: float
) -> list[Claim]:
    now, mark = await renew(connection, sql, worker, lease_seconds)
    followed = _obeyed(Mark.load(mark), now)
    claims = await _claim(connection, sql, queue, worker, limit=limit, now=now)
    if followed:
        await touch(connection, sql, "work", [(claim.partition, claim.queue, claim.key) for claim in claims])
    return claims


async def _claim(
    connection: Connection, sql: dict[str, str], queue: str, worker: str, *, limit: int, now: int
) -> list[Claim]:
    """Expired leases first, then one item of each lane in turn, from the lane after the one that was served last."""
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


async def still_held(connection: Connection, sql: dict[str, str], worker: str, claims: Sequence[Claim]) -> list[Claim]:
    """Which of these claims, whose COMMIT nobody answered, were made after all."""
    places = [(claim.partition, claim.queue, short(claim.key)) for claim in claims]
    rows = await connection.fetch(sql["still_held"], *zip(*places, strict=True), worker)
    fences = {row[3] for row in rows}
    return [claim for claim in claims if claim.fence in fences]


async def retire(connection: Connection, sql: dict[str, str], worker: str) -> list[str]:
    """Release everything a worker holds; answers the queue of each item."""
    await connection.fetchval(sql["lock_held_by"], worker)
    rows = await connection.fetch(sql["release_held_by"], worker)
    await connection.execute(sql["delete_worker"], worker)
    return [row[0] for row in rows]


async def sweep_blobs_and_workers(connection: Connection, sql: dict[str, str], limit: int) -> tuple[int, int]:
    now = await connection.fetchval(sql["now"])
    blobs = [row[0] for row in await connection.fetch(sql["expired_blobs"], now, limit)]
    gone = await connection.fetch(sql["delete_blob"], blobs)
    if await obey(connection, sql):
        named = [(partition, "", digest) for partition, digest in gone if digest is not None]
        await touch(connection, sql, "blob", named)
    workers = await connection.fetch(sql["delete_idle_workers"], now, limit)
    await connection.execute(sql["delete_old_batches"], now - int(BATCHES_KEPT_SECONDS * MICROSECONDS))
    return len(blobs), len(workers)
