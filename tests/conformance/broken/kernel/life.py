"""Faults of requests, notifications, declarations, opening and closing of a kernel."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

from msgspec.structs import replace

from keelbolt.errors import Forked, InvalidName, InvalidValue, NotDeclared, StorageClosed, TooLarge, WrongLoop
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import Health, Problem, Stats, Swept, WorkCounts
from keelbolt.kernel.declarations import CheckedCollection
from keelbolt.kernel.hints import Board, LogTopic, QueueTopic
from keelbolt.kernel.logs import Drop
from keelbolt.kernel.records import Collection, Put
from tests.conformance.broken.kernel.commits import Batched
from tests.conformance.broken.kernel.fault import NOTHING, Broken, caught_by

# ---------------------------------------------------------------------------------------------------- notifications


class _Deaf(Board):
    deaf_to: type[object] = object

    def wake(self, topics: Any) -> None:
        super().wake([topic for topic in topics if not isinstance(topic, self.deaf_to)])


class _DeafToLogs(_Deaf):
    deaf_to = LogTopic


class _DeafToQueues(_Deaf):
    deaf_to = QueueTopic


class _WakesOne(Board):
    def wake(self, topics: Any) -> None:
        for topic in topics:
            for watch in list(self._watches.get(topic, ()))[:1]:
                watch.wake()


class _NeverForgets(Board):
    def remove(self, watch: Any) -> None:
        pass


class _NeverWakesAll(Board):
    def wake_all(self) -> None:
        pass


class Boarded(Broken):
    boards: type[Board]

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.board = self.boards()


@caught_by("an_append_wakes_the_watch_of_its_stream")
class AppendsWakeNoWatch(Boarded):
    boards = _DeafToLogs


@caught_by("a_drop_wakes_the_watch_of_its_stream")
class DropsWakeNoWatch(Boarded):
    boards = Board

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        board, drops = self.board, any(isinstance(operation, Drop) for operation in operations)
        self.board = _DeafToLogs() if drops else board
        try:
            return super()._submit(partition, operations)
        finally:
            self.board = board


@caught_by("work_that_is_ready_wakes_the_watch_of_its_queue")
class WorkWakesNoWatch(Boarded):
    boards = _DeafToQueues


@caught_by("an_append_wakes_the_watch_of_its_stream")
class OneWatchIsWoken(Boarded):
    boards = _WakesOne


@caught_by("a_closed_watch_is_not_woken")
class LeftWatchesAreWoken(Boarded):
    boards = _NeverForgets


# -------------------------------------------------------------------------------------------------- open and closed


@caught_by("a_closed_storage_is_refused")
class AClosedStorageGoesOn(Broken):
    def _guard(self) -> asyncio.AbstractEventLoop:
        with contextlib.suppress(StorageClosed):
            return super()._guard()
        return asyncio.get_running_loop()


@caught_by("a_second_close_does_nothing")
class ASecondCloseFails(Broken):
    async def close(self) -> None:
        self._guard()
        await super().close()


@caught_by("another_loop_is_refused")
class AnyLoopWillDo(Broken):
    def _guard(self) -> asyncio.AbstractEventLoop:
        with contextlib.suppress(WrongLoop):
            return super()._guard()
        return asyncio.get_running_loop()


@caught_by("a_forked_child_is_refused")
class ForkedChildrenGoOn(Broken):
    def _guard(self) -> asyncio.AbstractEventLoop:
        with contextlib.suppress(Forked):
            return super()._guard()
        return asyncio.get_event_loop_policy().new_event_loop() if os.getpid() else asyncio.get_running_loop()


@caught_by("opening_twice_is_refused")
class OpensTwice(Broken):
    async def open(self) -> None:
        self._loop = None
        await super().open()


@caught_by("close_finishes_every_commit")
class CloseForgetsWhatWasCalled(Batched):
    async def _close(self) -> None:
        for _, _, future in self._called:
            future.set_exception(StorageClosed())
        self._called.clear()


@caught_by("close_ends_waiting_tails")
class ReadersWaitForEver(Boarded):
    boards = _NeverWakesAll


# -------------------------------------------------------------------------------------- declarations, health, stats


@caught_by("a_changed_declaration_rebuilds_indexes_and_counters")
class DeclarationsRebuildNothing(Broken):
    async def _declare(self, shape: CheckedCollection) -> None:
        pass


@caught_by("health_never_raises")
class HealthRaises(Broken):
    async def health(self) -> Health:
        self._guard()
        return await super().health()


@caught_by("stats_count_everything")
class StatsForgetTheDead(Broken):
    async def stats(self) -> Stats:
        stats = await super().stats()
        return dataclasses.replace(stats, work={queue: {**states, "dead": 0} for queue, states in stats.work.items()})


@caught_by("work_is_counted_by_queue_state_and_holder")
class HoldersOfAllQueuesAreCounted(Broken):
    async def count_work(self, queues: Sequence[str]) -> WorkCounts:
        everything = await super().count_work(["runs", "other"])
        return dataclasses.replace(await super().count_work(queues), holders=everything.holders)


@caught_by("counts_of_a_partition_are_of_one_moment")
class HoldersAreCountedLater(Broken):
    async def count_work(self, queues: Sequence[str]) -> WorkCounts:
        counts = await super().count_work(queues)
        await asyncio.sleep(0)
        return dataclasses.replace(counts, holders=(await super().count_work(queues)).holders)


@caught_by("count_work_has_the_longest_wait_and_the_leases")
class ItemsOfTheFutureWait(Broken):
    async def count_work(self, queues: Sequence[str]) -> WorkCounts:
        counts = await super().count_work(queues)
        return dataclasses.replace(counts, oldest=dict.fromkeys(counts.work, 1.0))


@caught_by("sweep_does_not_remove_live_workers")
class SweepRetiresTheLiving(Broken):
    async def _sweep(self, limit: int) -> Swept:
        for worker in list(self._queues.leases):
            await self._retire(worker)
        return await super()._sweep(limit)


# -------------------------------------------------------------------------------------------------------- requests


@caught_by("bad_keys_are_invalid_names")
class BadKeysAreDropped(Broken):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        try:
            return super().commit(partition, *operations)
        except InvalidName:
            return super().commit(partition, NOTHING)


@caught_by("large_values_are_refused")
class LargeBodiesAreCut(Broken):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        try:
            return super().commit(partition, *operations)
        except TooLarge:
            return super().commit(partition, *(replace(o, body=o.body[:9]) for o in operations if isinstance(o, Put)))


@caught_by("undeclared_collections_and_fields_are_refused")
class UndeclaredCollectionsAreEmpty(Broken):
    async def get_many(self, partition: str, collection: str, keys: Any) -> Sequence[Any]:
        try:
            return await super().get_many(partition, collection, keys)
        except NotDeclared:
            return [None for _ in keys]


@caught_by("values_of_a_wrong_type_are_refused")
class WrongTypesAreIgnored(Broken):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        try:
            return super().commit(partition, *operations)
        except InvalidValue:
            return super().commit(partition, NOTHING)


@caught_by("invalid_limits_of_reads_are_refused")
class BadLimitsAreCorrected(Broken):
    async def claim(self, queue: str, worker: str, *, limit: Any = 1, **how: Any) -> Any:
        return await super().claim(queue, worker, limit=limit if type(limit) is int and limit > 0 else 1, **how)


@caught_by("bad_partitions_are_invalid_names")
class AnyPartitionWillDo(Broken):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        return super().commit(str(partition)[:200].encode(errors="replace").decode() or "p", *operations)


@caught_by("bad_workers_are_invalid_names")
class AnyWorkerWillDo(Broken):
    async def claim(self, queue: str, worker: Any, **how: Any) -> Any:
        return await super().claim(queue, worker if worker and isinstance(worker, str) else "w", **how)


@caught_by("bad_names_of_families_are_invalid_names")
class AnyQueueWillDo(Broken):
    async def claim(self, queue: str, worker: str, **how: Any) -> Any:
        try:
            return await super().claim(queue, worker, **how)
        except InvalidName:
            return []


@caught_by("a_commit_without_operations_is_refused")
class AnEmptyCommitIsACommit(Broken):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        return super().commit(partition, *(operations or (NOTHING,)))


@caught_by("bad_declarations_are_refused")
class BadDeclarationsAreIgnored(Broken):
    async def declare(self, *families: Collection) -> None:
        with contextlib.suppress(InvalidValue):
            await super().declare(*families)


@caught_by("a_commit_that_is_not_awaited_is_committed")
class FlushReturnsAtOnce(Batched):
    async def flush(self) -> None:
        pass


@caught_by("no_threads_are_left_behind")
class ThreadsAreLeftBehind(Broken):
    async def _open(self) -> None:
        await super()._open()
        threading.Thread(target=time.sleep, args=(2.0,), daemon=True).start()


@caught_by("check_finds_no_problem_in_a_sound_storage")
class CheckSeesGhosts(Broken):
    async def _check(self) -> AsyncIterator[Problem]:
        yield Problem("somewhere", "a ghost")


@caught_by("a_collection_can_be_declared_later")
class DeclaredAgainIsDeclaredEmpty(Broken):
    async def declare(self, *families: Collection) -> None:
        await super().declare(*families)
        names = {family.name for family in families}
        for key in [key for key in self._ledger.records if key[1] in names]:
            del self._ledger.records[key]
