"""Faults of work items."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.ledger import WorkRow
from keelbolt.kernel.work import (
    Bury,
    Complete,
    Enqueue,
    Fence,
    Release,
    Remove,
    Retry,
    WorkPage,
)
from tests.conformance.broken.kernel.fault import NOTHING, Broken, caught_by, done


class OfWork(Broken):
    def row(self, partition: str, operation: Any) -> WorkRow | None:
        return self._ledger.work.get((partition, operation.queue, operation.key))


@caught_by("a_nudge_is_not_lost")
class NudgesAreLost(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Enqueue) and operation.worker is None:
            row = self.row(partition, operation)
            if row is not None and row.state == "held":
                return NOTHING
        return operation


@caught_by("a_nudge_for_later_comes_later")
class NudgesComeAtOnce(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Enqueue):
            row = self.row(partition, operation)
            if row is not None and row.state == "held":
                return replace(operation, ready_in=0.0)
        return operation


@caught_by("fences_grow_with_each_claim")
class FencesStartAnewAfterComplete(OfWork):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        if any(isinstance(operation, Complete) for operation in operations):
            self._ledger.last_fence = 0
        return end


@caught_by("a_stale_fence_is_refused")
class StaleFencesComplete(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Complete | Release | Retry | Bury):
            row = self.row(partition, operation)
            if row is not None and row.state == "held":
                return replace(operation, fence=row.fence)
        return operation


@caught_by("only_a_held_item_has_a_valid_fence")
class FencesOutliveTheirHold(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Fence):
            row = self.row(partition, operation)
            if row is not None and row.fence == operation.fence:
                return NOTHING
        return operation


@caught_by("release_does_not_count_the_attempt")
class ReleaseCountsTheAttempt(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Release):
            return Retry(operation.queue, operation.key, operation.fence, "released", operation.ready_in)
        return operation


@caught_by("retry_counts_and_ends_dead")
class RetryNeverEnds(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Retry):
            return Release(operation.queue, operation.key, operation.fence, operation.ready_in)
        return operation


@caught_by("retry_waits_for_its_time")
class RetryComesAtOnce(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        return replace(operation, ready_in=0.0) if isinstance(operation, Retry) else operation


@caught_by("bury_keeps_the_item_dead")
class TheBuriedComeBack(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Bury):
            return Release(operation.queue, operation.key, operation.fence)
        return operation


@caught_by("complete_removes_the_item")
class CompletedItemsComeBack(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Complete):
            return Release(operation.queue, operation.key, operation.fence)
        return operation


@caught_by("remove_works_in_any_state")
class RemoveSparesTheHeld(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Remove):
            row = self.row(partition, operation)
            if row is not None and row.state == "held":
                return NOTHING
        return operation


@caught_by("an_item_that_is_not_ready_waits_for_its_time")
class EverythingIsReady(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        return replace(operation, ready_in=0.0) if isinstance(operation, Enqueue) else operation


@caught_by("enqueue_on_a_waiting_item_takes_the_earlier_time")
class TheLaterTimeWins(OfWork):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        for operation in operations:
            if isinstance(operation, Enqueue):
                row = self.row(partition, operation)
                if row is not None and row.state == "waiting":
                    super()._submit(partition, (Remove(operation.queue, operation.key),))
        return super()._submit(partition, operations)


@caught_by("enqueue_keeps_the_attempts_of_a_waiting_item")
class EnqueueForgetsTheAttempts(TheLaterTimeWins):
    pass


@caught_by("enqueue_of_a_dead_item_starts_again")
class TheDeadStayDead(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Enqueue):
            row = self.row(partition, operation)
            if row is not None and row.state == "dead":
                return NOTHING
        return operation


@caught_by("enqueue_with_a_worker_claims_at_once")
class EnqueueForgetsItsWorker(OfWork):
    def change(self, partition: str, operation: Operation) -> Operation:
        return replace(operation, worker=None) if isinstance(operation, Enqueue) else operation


@caught_by("enqueue_with_a_worker_respects_the_holder")
class EnqueueTakesFromTheHolder(OfWork):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        for operation in operations:
            if isinstance(operation, Enqueue) and operation.worker is not None:
                row = self.row(partition, operation)
                if row is not None and row.state == "held":
                    super()._submit(partition, (Release(operation.queue, operation.key, row.fence),))
        return super()._submit(partition, operations)


@caught_by("work_and_records_are_one_commit")
class WorkIsWrittenFirst(OfWork):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        first = tuple(o for o in operations if isinstance(o, Complete | Release | Retry | Bury | Remove))
        if not first or len(first) == len(operations):
            return super()._submit(partition, operations)
        end = super()._submit(partition, first)
        if end.exception() is not None:
            return end
        rest = super()._submit(partition, tuple(o for o in operations if o not in first))
        return rest if rest.exception() is not None else done(operations, end.result())


@caught_by("list_work_lists_a_state_by_key")
class ListsWorkOfEveryState(OfWork):
    async def list_work(self, partition: str, queue: str, **how: Any) -> WorkPage:
        page = await super().list_work(partition, queue, **how)
        if how["state"] == "dead":
            return page
        return replace(page, items=(*page.items, *(await super().list_work(partition, queue, state="dead")).items))
