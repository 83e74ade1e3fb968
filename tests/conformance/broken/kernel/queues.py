"""Faults of claims and leases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any

from msgspec.structs import replace

from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.ledger import Key
from keelbolt.kernel.memory.content import MemoryQueues, Rows
from keelbolt.kernel.work import Claim, Enqueue
from tests.conformance.broken.kernel.fault import Broken, caught_by


class Queued(Broken):
    queues: type[MemoryQueues]

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._queues = self.queues()


class _OneLaneFirst(MemoryQueues):
    def ready(self, queue: str, rows: Rows, *, now: int) -> Iterator[Key]:
        waiting = [(key, row) for key, row in rows.items() if row is not None and key[1] == queue]
        ready = [(row.lane, -row.priority, row.ready_at, key) for key, row in waiting if row.state == "waiting"]
        return iter([key for _, _, ready_at, key in sorted(ready) if ready_at <= now])


@caught_by("lanes_are_served_in_turn")
class LanesAreNotServedInTurn(Queued):
    queues = _OneLaneFirst


class _OnePartitionFirst(MemoryQueues):
    """The fairness keys are served in turn; of each, the oldest item first."""

    def ready(self, queue: str, rows: Rows, *, now: int) -> Iterator[Key]:
        waiting = [(key, row) for key, row in rows.items() if row is not None and key[1] == queue]
        lanes: dict[str, list[tuple[int, int, Key]]] = {}
        for key, row in waiting:
            if row.state == "waiting" and row.ready_at <= now:
                lanes.setdefault(row.lane, []).append((-row.priority, row.ready_at, key))
        turns = zip_longest(*(sorted(lane) for _, lane in sorted(lanes.items())))
        return iter([found[2] for turn in turns for found in turn if found is not None])


@caught_by("partitions_of_a_lane_are_served_in_turn")
class PartitionsAreNotServedInTurn(Queued):
    queues = _OnePartitionFirst


@caught_by("a_new_partition_does_not_wait_for_the_backlog")
class NewPartitionsQueueUpBehindTheBacklog(Queued):
    queues = _OnePartitionFirst


class _PriorityOverLanes(MemoryQueues):
    def ready(self, queue: str, rows: Rows, *, now: int) -> Iterator[Key]:
        waiting = [(key, row) for key, row in rows.items() if row is not None and key[1] == queue]
        ready = [(-row.priority, row.ready_at, key) for key, row in waiting if row.state == "waiting"]
        return iter([key for _, ready_at, key in sorted(ready) if ready_at <= now])


@caught_by("a_priority_does_not_starve_another_lane")
class PrioritiesStarveLanes(Queued):
    queues = _PriorityOverLanes


@caught_by("a_new_lane_does_not_wait_for_the_backlog")
class NewLanesQueueUpBehindTheBacklog(Queued):
    queues = _PriorityOverLanes


class _NewestFirst(MemoryQueues):
    def ready(self, queue: str, rows: Rows, *, now: int) -> Iterator[Key]:
        waiting = [(key, row) for key, row in rows.items() if row is not None and key[1] == queue]
        ready = [(-row.priority, -row.ready_at, key) for key, row in waiting if row.state == "waiting"]
        return iter([key for _, ready_at, key in sorted(ready) if -ready_at <= now])


@caught_by("within_a_lane_priority_then_age")
class TheYoungestGoesFirst(Queued):
    queues = _NewestFirst


@caught_by("age_counts_from_readiness")
class AgeIsIgnored(Queued):
    queues = _NewestFirst


@caught_by("within_a_lane_priority_then_age")
class PrioritiesAreIgnored(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return replace(operation, priority=0) if isinstance(operation, Enqueue) else operation


class _BacklogFirst(MemoryQueues):
    def expired(self, queue: str, rows: Rows, *, now: int) -> Iterator[Key]:
        return iter(())

    def ready(self, queue: str, rows: Rows, *, now: int) -> Iterator[Key]:
        yield from super().ready(queue, rows, now=now)
        yield from super().expired(queue, rows, now=now)


@caught_by("expired_leases_go_before_the_backlog")
class TheBacklogGoesBeforeExpiredLeases(Queued):
    queues = _BacklogFirst


class _LeasesNeverEnd(MemoryQueues):
    def expired(self, queue: str, rows: Rows, *, now: int) -> Iterator[Key]:
        return iter(())


@caught_by("an_expired_lease_lets_others_claim")
class LeasesNeverEnd(Queued):
    queues = _LeasesNeverEnd


@caught_by("a_running_lease_prevents_other_claims")
class LeasesEndAtOnce(Broken):
    async def _heartbeat(self, worker: str, lease_seconds: float) -> None:
        await super()._heartbeat(worker, lease_seconds / 1000)


@caught_by("one_heartbeat_renews_everything")
class HeartbeatsAreIgnored(Broken):
    async def heartbeat(self, worker: str, *, lease_seconds: float = 1.0) -> None:
        pass


@caught_by("leases_belong_to_workers")
class HeartbeatsRenewEverybody(Broken):
    async def heartbeat(self, worker: str, *, lease_seconds: float = 1.0) -> None:
        for each in {worker, *self._queues.leases}:
            await self._heartbeat(each, lease_seconds)


@caught_by("a_claim_renews_like_a_heartbeat")
class EmptyClaimsDoNotRenew(Broken):
    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        before = self._queues.leases.get(worker)
        claims = await super()._claim(queue, worker, limit, lease_seconds)
        if not claims and before is not None:
            self._queues.leases[worker] = before
        return claims


@caught_by("an_expired_lease_holds_until_the_takeover")
class ExpiredHoldersLoseAtOnce(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        now = self.clock.steady()
        for worker, until in list(self._queues.leases.items()):
            if until <= now:
                asyncio.ensure_future(self._retire(worker)).add_done_callback(lambda task: task.result())
                for key in tuple(self._queues.held.get(worker, ())):
                    row = self._ledger.work[key]
                    assert row is not None
                    row.fence = self._ledger.next_fence()
        return super()._submit(partition, operations)


@caught_by("an_expired_lease_lets_others_claim")
class ATakeoverKeepsTheFence(Broken):
    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        before = {key: row.fence for key, row in self._ledger.work.items() if row is not None and row.state == "held"}
        claims = list(await super()._claim(queue, worker, limit, lease_seconds))
        for number, claim in enumerate(claims):
            key = (claim.partition, claim.queue, claim.key)
            if key in before:
                row = self._ledger.work[key]
                assert row is not None
                row.fence = before[key]
                claims[number] = replace(claim, fence=before[key])
        return claims


@caught_by("an_exhausted_item_is_claimed_once_more")
class ATakeoverIsNoAttempt(Broken):
    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        before = {key: row.attempt for key, row in self._ledger.work.items() if row is not None and row.state == "held"}
        claims = list(await super()._claim(queue, worker, limit, lease_seconds))
        return [
            replace(claim, attempt=before.get((claim.partition, claim.queue, claim.key), claim.attempt))
            for claim in claims
        ]


@caught_by("retire_releases_everything_at_once")
class RetireForgetsTheItems(Broken):
    async def _retire(self, worker: str) -> int:
        return 0


@caught_by("queues_do_not_mix")
class QueuesMix(Broken):
    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        claims = list(await super()._claim(queue, worker, limit, lease_seconds))
        for other in {key[1] for key in self._ledger.work} - {queue}:
            if len(claims) < limit:
                claims += await super()._claim(other, worker, limit - len(claims), lease_seconds)
        return claims


@caught_by("a_claim_takes_up_to_its_limit")
class ClaimsTakeOneTooMany(Broken):
    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        return await super()._claim(queue, worker, limit + 1, lease_seconds)


@caught_by("claim_serves_all_partitions")
class OnePartitionIsNeverServed(Broken):
    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        claims = await super()._claim(queue, worker, limit, lease_seconds)
        return [claim for claim in claims if claim.partition != "p3"]


@caught_by("concurrent_claims_share_the_items")
class RacingClaimsGetTheSame(Broken):
    """Chooses first and marks later: a concurrent claim gets the same items."""

    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        now = self.clock.steady()
        rows = [(key, row) for key, row in self._ledger.work.items() if row is not None and row.state == "waiting"]
        keys = [key for key, row in islice(rows, limit) if row.ready_at <= now]
        await asyncio.sleep(0)
        await super()._claim(queue, worker, limit, lease_seconds)
        return [Claim(self.scoped(key[0]), *key[1:], self._ledger.next_fence(), 1, 5, "", 0) for key in keys]


@caught_by("an_item_enqueued_many_times_is_claimed_once")
class EveryEnqueueIsAClaim(Broken):
    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        claims = await super()._claim(queue, worker, limit, lease_seconds)
        return [*claims, *claims][:limit]


@caught_by("enqueue_with_a_new_worker_starts_a_lease")
class NewWorkersHaveNoLease(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        before = set(self._queues.leases)
        end = super()._submit(partition, operations)
        for worker in set(self._queues.leases) - before:
            del self._queues.leases[worker]
        return end


@caught_by("concurrent_takeovers_have_one_winner")
class EverybodyInherits(RacingClaimsGetTheSame):
    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        keys = list(islice(self._queues.expired(queue, self._ledger.work, now=self.clock.steady()), limit))
        await asyncio.sleep(0)
        claims = await Broken._claim(self, queue, worker, limit, lease_seconds)
        return claims or [Claim(self.scoped(key[0]), *key[1:], self._ledger.next_fence(), 1, 5, "", 0) for key in keys]


@caught_by("retry_of_an_exhausted_item_makes_it_dead")
class TheExhaustedAreTriedAgain(Broken):
    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        claims = await super()._claim(queue, worker, limit, lease_seconds)
        return [replace(claim, max_attempts=claim.max_attempts + 1) for claim in claims]


@caught_by("a_claim_holds_the_item")
class ClaimsDoNotHold(Broken):
    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]:
        claims = await super()._claim(queue, worker, limit, lease_seconds)
        await self._retire(worker)
        return claims


@caught_by("an_enqueued_item_waits")
class LanesAreForgotten(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return replace(operation, lane="") if isinstance(operation, Enqueue) else operation
