"""Faults of commit and its checks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any

from msgspec.structs import replace

from keelbolt.errors import CommitRefused, InvalidRequest, WrittenTwice
from keelbolt.kernel.commits import Operation, Receipt, address
from keelbolt.kernel.logs import Append, Head
from keelbolt.kernel.records import (
    Absent,
    Delete,
    FieldIn,
    FieldNotIn,
    Insert,
    Present,
    Put,
    Record,
    Replace,
    Take,
    Version,
)
from keelbolt.kernel.work import Fence
from tests.conformance.broken.kernel.fault import NOTHING, Broken, caught_by, done, failed


@caught_by("version_requires_exactly_this_version")
class ForgetsVersions(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return NOTHING if isinstance(operation, Version) else operation


@caught_by("absent_requires_that_there_is_no_record")
class ForgetsAbsent(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return NOTHING if isinstance(operation, Absent) else operation


@caught_by("present_requires_a_record")
class ForgetsPresent(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return NOTHING if isinstance(operation, Present) else operation


@caught_by("field_in_requires_one_of_the_values")
class ForgetsFieldIn(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return NOTHING if isinstance(operation, FieldIn) else operation


@caught_by("field_not_in_requires_none_of_the_values")
class TakesNoneForNoValue(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, FieldNotIn):
            return replace(operation, values=tuple(value for value in operation.values if value is not None))
        return operation


@caught_by("head_requires_exactly_this_head")
class ForgetsHeads(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return NOTHING if isinstance(operation, Head) else operation


@caught_by("fence_requires_that_the_item_is_held_under_it")
class ForgetsFences(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return NOTHING if isinstance(operation, Fence) else operation


@caught_by("insert_writes_only_a_new_record")
class InsertOverwrites(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Insert):
            return Put(operation.collection, operation.key, operation.body, operation.fields, operation.expires_in)
        return operation


@caught_by("checks_see_the_state_before_the_commit")
class ChecksSeeTheWrites(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        written = {address(operation) for operation in operations if isinstance(operation, Put)}
        seen = [
            replace(operation, version=operation.version - 1)
            if isinstance(operation, Version) and address(operation) in written
            else operation
            for operation in operations
        ]
        return super()._submit(partition, tuple(seen))


@caught_by("a_refused_commit_writes_nothing")
class PartOfARefusedCommitStays(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        outcomes: list[Any] = []
        for operation in operations:
            one = super()._submit(partition, (operation,))
            if one.exception() is not None:
                return one
            outcomes += one.result().outcomes
        return done(operations, Receipt(operations, tuple(outcomes)))


@caught_by("a_refused_write_undoes_the_whole_commit")
class RefusedAppendsStay(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        if end.exception() is not None and (kept := tuple(o for o in operations if isinstance(o, Append))):
            super()._submit(partition, kept)
        return end


@caught_by("every_refusal_names_its_check")
class RefusalsHideWhatWasFound(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        error = end.exception()
        return failed(CommitRefused(error.reason, error.check)) if isinstance(error, CommitRefused) else end


@caught_by("every_refusal_names_its_check")
class RefusalsNameTheFirstOperation(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        error = end.exception()
        if isinstance(error, CommitRefused):
            return failed(CommitRefused("version", error.check, found=error.found))
        return end


class Batched(Broken):
    """Commits all concurrent calls together, a little later."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._called: list[tuple[str, tuple[Operation, ...], asyncio.Future[Receipt]]] = []

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        loop = asyncio.get_running_loop()
        if not self._called:
            loop.call_soon(self._batch)
        self._called.append((partition, operations, loop.create_future()))
        return self._called[-1][2]

    def _batch(self) -> None:
        called, self._called = self._called, []
        for partition, operations, future in self.order(called):
            end = Broken._submit(self, partition, operations)
            if future.cancelled():
                end.exception()
            elif (error := end.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(end.result())

    def order(self, called: list[Any]) -> list[Any]:
        return called

    async def _flush(self) -> None:
        await asyncio.gather(*(future for _, _, future in self._called), return_exceptions=True)

    async def _close(self) -> None:
        await self._flush()


@caught_by("call_order_is_commit_order")
class CommitsInAnyOrder(Batched):
    def order(self, called: list[Any]) -> list[Any]:
        return called[::-1]


@caught_by("each_commit_sees_the_commits_called_before")
class JudgesABatchByTheStateBeforeIt(Batched):
    def order(self, called: list[Any]) -> list[Any]:
        for _, operations, _ in called:
            for operation in operations:
                if isinstance(operation, Insert | Take):
                    return sorted(called, key=lambda call: not isinstance(call[1][0], Insert | Take))
        return called


@caught_by("a_refusal_does_not_affect_other_commits")
class OneRefusalRefusesTheBatch(Batched):
    def _batch(self) -> None:
        called, self._called = self._called, []
        refusal: BaseException | None = None
        for partition, operations, future in called:
            end = Broken._submit(self, partition, operations)
            refusal = refusal or end.exception()
            if refusal is not None:
                future.set_exception(refusal)
            else:
                future.set_result(end.result())


@caught_by("an_invalid_commit_does_not_affect_other_commits")
class AnInvalidCallSpoilsTheNext(Broken):
    spoiled = False

    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        if self.spoiled:
            self.spoiled = False
            raise InvalidRequest("the call before was wrong")
        try:
            return super().commit(partition, *operations)
        except InvalidRequest:
            self.spoiled = True
            raise


class _Lazy:
    def __init__(self, call: Callable[[], Awaitable[Receipt]]) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, None, Receipt]:
        return self._call().__await__()


@caught_by("a_commit_that_is_not_awaited_is_committed")
class CommitsOnlyWhenAwaited(Broken):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        return _Lazy(lambda: super(CommitsOnlyWhenAwaited, self).commit(partition, *operations))


@caught_by("a_cancelled_commit_is_committed")
class ACancelledCallerLosesItsCommit(Broken):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        async def later() -> Receipt:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return await super(ACancelledCallerLosesItsCommit, self).commit(partition, *operations)

        return asyncio.ensure_future(later())


@caught_by("flush_waits_for_a_cancelled_commit")
class FlushForgetsCancelledCommits(Broken):
    """Commits later; flush waits for the caller's future, which is done once the caller is cancelled."""

    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        async def later() -> Receipt:
            await asyncio.sleep(0.05)
            return await super(FlushForgetsCancelledCommits, self).commit(partition, *operations)

        self._last = asyncio.shield(asyncio.ensure_future(later()))
        return self._last

    async def flush(self) -> None:
        await asyncio.wait([self._last])


@caught_by("flush_does_not_wait_for_later_commits")
class FlushWaitsUntilIdle(Broken):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._calls = 0

    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        self._calls += 1
        return super().commit(partition, *operations)

    async def flush(self) -> None:
        calls = -1
        while calls != self._calls:
            calls = self._calls
            await asyncio.sleep(0.01)


@caught_by("arguments_are_copied")
class ReadsItsInputLater(Broken):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        async def later() -> Receipt:
            return await super(ReadsItsInputLater, self).commit(partition, *operations)

        return asyncio.ensure_future(later())


@caught_by("arguments_are_copied")
class HandsOutItsOwnFields(Broken):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._known: dict[tuple[str, int], Record] = {}

    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]:
        found = await super()._get_many(partition, collection, keys)
        return [record and self._known.setdefault((record.key, record.version), record) for record in found]


@caught_by("nothing_is_written_twice_in_one_commit")
class TheSecondWriteWins(Broken):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        last = {(type(operation).__module__, address(operation)): operation for operation in operations}
        return super().commit(partition, *last.values())


@caught_by("counting_with_versions_loses_no_update")
class ReplaceTakesAnyVersion(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        anyhow = (Put(o.collection, o.key, o.body) if isinstance(o, Replace) else o for o in operations)
        return super()._submit(partition, tuple(anyhow))


@caught_by("readers_never_see_a_part_of_a_commit")
class StreamsAppearOneAfterAnother(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        appends = [operation for operation in operations if isinstance(operation, Append)]
        if len(appends) < 2:
            return super()._submit(partition, operations)
        late = appends[-1]
        end = super()._submit(partition, tuple(NOTHING if operation is late else operation for operation in operations))
        asyncio.get_running_loop().call_later(0.002, super()._submit, partition, (late,))
        return end


@caught_by("a_large_commit_is_atomic")
class LargeCommitsAreSplit(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        if len(operations) <= 100:
            return super()._submit(partition, operations)
        outcomes: list[Any] = []
        for start in range(0, len(operations), 100):
            end = super()._submit(partition, operations[start : start + 100])
            if end.exception() is not None:
                return end
            outcomes += end.result().outcomes
        return done(operations, Receipt(operations, tuple(outcomes)))


@caught_by("a_commit_may_only_check")
class AbsentIsNotCheckedBesideAVersion(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        if any(isinstance(operation, Version) for operation in operations):
            operations = tuple(NOTHING if isinstance(o, Absent) else o for o in operations)
        return super()._submit(partition, operations)


@caught_by("delete_removes_at_its_version_or_at_any")
class DeleteIgnoresItsVersion(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return replace(operation, version=None) if isinstance(operation, Delete) else operation


@caught_by("one_of_many_concurrent_inserts_succeeds")
class InsertChecksWhatWasThereAMomentAgo(Broken):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._new: set[str] = set()

    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Insert):
            if operation.key in self._new:
                return Put(operation.collection, operation.key, operation.body, operation.fields)
            self._new.add(operation.key)
            asyncio.get_running_loop().call_soon(self._new.clear)
        return operation


@caught_by("equal_names_in_different_families_do_not_clash")
class NamesAreOneAcrossFamilies(Broken):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        names = [address(operation)[1] for operation in operations if not isinstance(operation, Version | Absent)]
        if len(set(names)) < len(names):
            raise WrittenTwice
        return super().commit(partition, *operations)


@caught_by("a_check_and_a_write_may_share_a_key")
class ChecksCountAsWrites(Broken):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        if len({address(operation) for operation in operations}) < len(operations):
            raise WrittenTwice
        return super().commit(partition, *operations)


@caught_by("every_read_sees_an_acknowledged_commit")
class AcknowledgesTooEarly(Batched):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        asyncio.get_running_loop().call_soon(super()._submit, partition, operations)
        return done(operations, Receipt(operations, tuple(1 for _ in operations)))
