"""Claims, leases and sweeps over all partitions.

The registry lists candidates: partitions with expired leases first, then those with items that became ready, then the
fairness keys in turn. The partition decides: it respects an unexpired lease, and returns nothing for an empty fairness
key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from keelbolt.kernel.contract import LEASE_SECONDS, Swept
from keelbolt.kernel.hints import QueueTopic, Topic
from keelbolt.kernel.judge import MICROSECONDS, RENEWED
from keelbolt.kernel.redis.operations import micros
from keelbolt.kernel.redis.servers import RedisServers
from keelbolt.kernel.scope import Scope
from keelbolt.kernel.work import Claim

ROUNDS = 1000  # of picking fairness keys per claim; each serves hundreds of items, or finds one empty
SWEEPS = 100


class RedisQueues:
    """``tell`` notifies the waiters of these topics; ``scoped`` returns the scope of a partition for its claims."""

    def __init__(
        self, store: RedisServers, tell: Callable[[Sequence[Topic]], None], scoped: Callable[[str], Scope]
    ) -> None:
        self._store = store
        self._scoped = scoped
        self._tell = tell
        self._leases: dict[str, float] = {}  # worker: end, by this process's clock
        self._renewed: dict[str, dict[bytes, float]] = {}  # worker: end of its lease in each place where it holds items

    def lease(self, worker: str) -> int:
        """Return the remaining microseconds of a worker's lease; the full lease for a worker without one."""
        left = self._leases.get(worker, 0.0) - time.monotonic()
        return int((left if left > 0 else LEASE_SECONDS) * MICROSECONDS)

    def alive(self, worker: str) -> None:
        """Note a claim by Enqueue. If the worker's lease had ended, start a new one for everything that it holds."""
        if self._leases.get(worker, 0.0) > time.monotonic():
            return
        hello = self._hello(worker, LEASE_SECONDS)
        hello.add_done_callback(lambda _: self._follow(hello, worker))

    def _follow(self, hello: asyncio.Future[list[bytes]], worker: str) -> None:
        if not hello.cancelled() and hello.exception() is None:
            for call in self._renewals(worker, hello.result(), LEASE_SECONDS):
                call.add_done_callback(_seen)

    # ------------------------------------------------------------------------------------------------------ leases

    async def heartbeat(self, worker: str, lease_seconds: float) -> None:
        places = await self._hello(worker, lease_seconds)
        await self._renew(worker, places, lease_seconds)

    def _hello(self, worker: str, lease_seconds: float) -> asyncio.Future[list[bytes]]:
        self._leases[worker] = time.monotonic() + lease_seconds
        return self._store.write_registry("hello", worker.encode(), micros(lease_seconds))

    async def _renew(self, worker: str, places: Sequence[bytes], lease_seconds: float) -> None:
        if calls := self._renewals(worker, places, lease_seconds):
            await asyncio.gather(*calls)

    def _renewals(self, worker: str, places: Sequence[bytes], lease_seconds: float) -> list[asyncio.Future[Any]]:
        until = time.monotonic() + lease_seconds
        name, lease = worker.encode(), micros(lease_seconds)
        calls = []
        renewed = self._renewed.setdefault(worker, {})
        for place in places:
            queue, _, partition = place.partition(b"/")
            calls.append(self._store.write("renew", partition.decode(), queue, name, lease))
            renewed[place] = until
        return calls

    def _stale(self, worker: str, places: Sequence[bytes], lease_seconds: float) -> list[bytes]:
        """Return the places whose lease end differs from the requested one by more than the slack.

        Forget the places where the worker no longer holds items; a worker visits many of them in its life.
        """
        until = time.monotonic() + lease_seconds
        slack = lease_seconds * RENEWED
        known = self._renewed.get(worker, {})
        self._renewed[worker] = {place: known[place] for place in places if place in known}
        return [place for place in places if abs(known.get(place, 0.0) - until) > slack]

    async def retire(self, worker: str) -> int:
        places = await self._hello(worker, 0.001)
        parted = [place.partition(b"/") for place in places]
        counts = await asyncio.gather(
            *(self._store.write("retire", partition.decode(), queue, worker.encode()) for queue, _, partition in parted)
        )
        await self._store.write_registry("goodbye", worker.encode())
        self._leases.pop(worker, None)
        self._renewed.pop(worker, None)
        freed = {queue for (queue, _, _), count in zip(parted, counts, strict=True) if count}
        if freed:
            self._tell([QueueTopic(queue.decode()) for queue in freed])
        return sum(counts)

    # ------------------------------------------------------------------------------------------------------ claims

    async def claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> list[Claim]:
        claims = await self._claim(queue, worker, limit, lease_seconds)
        if not claims and await self._store.repair(queue):
            claims = await self._claim(queue, worker, limit, lease_seconds)
        return claims

    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> list[Claim]:
        hello = self._hello(worker, lease_seconds)
        picking = self._pick(queue, limit, visited=False)
        stale = self._stale(worker, await hello, lease_seconds)
        if stale:
            await self._renew(worker, stale, lease_seconds)
        lease = micros(lease_seconds)
        visits, due, picks = await picking
        claims: list[Claim] = []
        for partition in dict.fromkeys(visits):
            if len(claims) < limit:
                claims += await self._take(queue, worker, lease, partition, limit - len(claims), ())
        await asyncio.gather(
            *(self._take(queue, worker, lease, partition, 0, ()) for partition in due if partition not in visits)
        )
        if (visits or due) and len(claims) < limit:
            _, _, picks = await self._pick(queue, limit - len(claims), visited=True)
        for _ in range(ROUNDS):
            if not picks or len(claims) >= limit:
                break
            claims += await self._serve(queue, worker, lease, picks)
            if len(claims) < limit:
                _, _, picks = await self._pick(queue, limit - len(claims), visited=True)
        return claims

    def _pick(self, queue: str, need: int, *, visited: bool) -> asyncio.Future[Any]:
        return self._store.write_registry("pick", queue.encode(), b"%d" % max(need, 1), b"1" if visited else b"0")

    async def _serve(self, queue: str, worker: str, lease: bytes, picks: Sequence[Sequence[bytes]]) -> list[Claim]:
        """Claim one item per pick where there is one, in the order of the picks."""
        lanes: dict[bytes, list[bytes]] = {}
        for lane, partition in picks:
            lanes.setdefault(partition, []).append(lane)
        answers = await asyncio.gather(
            *(self._claims(queue, worker, lease, name, len(chosen), chosen) for name, chosen in lanes.items())
        )
        found: dict[bytes, list[Claim | None]] = {}
        claims: list[Claim] = []
        for partition, (over, picked) in zip(lanes, answers, strict=True):
            claims += over
            found[partition] = picked
        for _, partition in picks:
            claim = found[partition].pop(0)
            if claim is not None:
                claims.append(claim)
        return claims

    async def _take(
        self, queue: str, worker: str, lease: bytes, partition: bytes, limit: int, lanes: Sequence[bytes]
    ) -> list[Claim]:
        over, _ = await self._claims(queue, worker, lease, partition, limit, lanes)
        return over

    async def _claims(
        self, queue: str, worker: str, lease: bytes, partition: bytes, limit: int, lanes: Sequence[bytes]
    ) -> tuple[list[Claim], list[Claim | None]]:
        name = partition.decode()
        words = (queue.encode(), worker.encode(), lease, b"%d" % limit, *lanes)
        over, picked = await self._store.write("claim", name, *words)
        if over or any(picked):
            place = b"%b/%b" % (queue.encode(), partition)
            self._renewed.setdefault(worker, {})[place] = time.monotonic() + int(lease) / MICROSECONDS
        scope = self._scoped(name)
        return (
            [_claim(scope, queue, row) for row in over],
            [_claim(scope, queue, row) if row else None for row in picked],
        )

    # ------------------------------------------------------------------------------------------------------- sweep

    async def sweep(self, limit: int) -> Swept:
        records = blobs = 0
        for _ in range(SWEEPS):
            partitions: list[bytes] = await self._store.write_registry("expired")
            for partition in partitions:
                left = (b"%d" % (limit - records), b"%d" % (limit - blobs))
                gone_records, gone_blobs = await self._store.write("sweep", partition.decode(), *left)
                records += gone_records
                blobs += gone_blobs
            if not partitions or records >= limit or blobs >= limit:
                break
        workers: int = await self._store.write_registry("bury", b"%d" % limit)
        return Swept(records, blobs, workers)


def _claim(scope: Scope, queue: str, row: Sequence[Any]) -> Claim:
    key, fence, attempt, max_attempts, lane, priority = row
    return Claim(scope, queue, key.decode(), fence, attempt, max_attempts, lane.decode(), priority)


def _seen(future: asyncio.Future[Any]) -> None:
    """Ignore a failed renewal: the lease then expires."""
    if not future.cancelled():
        future.exception()
