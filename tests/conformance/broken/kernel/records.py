"""Faults of records, values and partitions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from typing import Any

from msgspec.structs import replace

from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import Swept
from keelbolt.kernel.logs import Append, LogState
from keelbolt.kernel.records import Delete, Insert, Patch, Put, Record, Replace, Take, Version
from keelbolt.kernel.work import WorkItem
from tests.conformance.broken.kernel.fault import Broken, caught_by, done


@caught_by("versions_count_from_one")
class PatchLeavesTheVersion(Broken):
    """A patched record keeps the version it had."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._patches: dict[tuple[str, str, str], int] = {}

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        if end.exception() is None:
            for operation in operations:
                if isinstance(operation, Patch):
                    key = (partition, operation.collection, operation.key)
                    self._patches[key] = self._patches.get(key, 0) + 1
        return end

    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]:
        found = await super()._get_many(partition, collection, keys)
        return [
            record and replace(record, version=record.version - self._patches.get((partition, collection, key), 0))
            for record, key in zip(found, keys, strict=True)
        ]


@caught_by("put_replaces_body_and_fields")
class PutMergesFields(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Put):
            stored = self._ledger.records.get((partition, operation.collection, operation.key))
            if stored is not None:
                return replace(operation, fields={**stored.fields, **operation.fields})
        return operation


@caught_by("patch_changes_only_its_fields")
class PatchForgetsTheOtherFields(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Patch):
            others = dict.fromkeys(self.declared.shape(operation.collection).types)
            return replace(operation, fields={**others, **operation.fields})
        return operation


@caught_by("patch_needs_its_record_and_version")
class PatchMakesARecord(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Patch):
            stored = self._ledger.records.get((partition, operation.collection, operation.key))
            if stored is None:
                return Insert(operation.collection, operation.key, b"", operation.fields)
        return operation


@caught_by("take_returns_the_record_and_removes_it")
class TakeLeavesTheRecord(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        if end.exception() is None:
            for operation, outcome in zip(operations, end.result().outcomes, strict=True):
                if isinstance(operation, Take) and isinstance(outcome, Record):
                    super()._submit(partition, (Put(outcome.collection, outcome.key, outcome.body, outcome.fields),))
        return end


@caught_by("one_of_many_concurrent_takes_succeeds")
class TakeIsTwoSteps(Broken):
    """Reads first and deletes later: a concurrent caller gets the record too."""

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        if end.exception() is None and isinstance(operations[0], Take):
            taken = end.result().outcomes[0]
            assert isinstance(taken, Record)
            super()._submit(partition, (Put(taken.collection, taken.key, taken.body),))
            late = (Delete(taken.collection, taken.key),)
            asyncio.get_running_loop().call_soon(super()._submit, partition, late)
        return end


@caught_by("a_deleted_key_starts_at_version_one")
class DeletedKeysGoOnCounting(Broken):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._deleted: dict[tuple[str, str, str], int] = {}

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        for operation in operations:
            if isinstance(operation, Delete):
                key = (partition, operation.collection, operation.key)
                stored = self._ledger.records.get(key)
                self._deleted[key] = stored.version if stored is not None else 0
        end = super()._submit(partition, operations)
        if end.exception() is None and isinstance(operations[0], Put | Insert):
            first = operations[0]
            gone = self._deleted.get((partition, first.collection, first.key), 0)
            _, *others = end.result().outcomes
            version = end.result().version(first.collection, first.key) + gone
            return done(operations, Receipt(operations, (version, *others)))
        return end


@caught_by("get_many_returns_records_in_the_order_of_the_keys")
class GetManyAnswersInTheOrderOfTheStore(Broken):
    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]:
        return await super()._get_many(partition, collection, sorted(keys))


@caught_by("get_many_is_one_snapshot")
class GetManyReadsOneByOne(Broken):
    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]:
        found: list[Record | None] = []
        for key in keys:
            await asyncio.sleep(0)
            found += await super()._get_many(partition, collection, (key,))
        return found


# ---------------------------------------------------------------------------------------------------------- expiry


@caught_by("reads_do_not_return_expired_records")
class ExpiredRecordsStayUntilSwept(Broken):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._until: dict[tuple[str, str, str], int] = {}

    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Put | Insert | Replace) and operation.expires_in is not None:
            return replace(operation, expires_in=None)
        return operation


@caught_by("checks_do_not_see_expired_records")
class ExpiredRecordsStillBlock(Broken):
    """Reads don't see an expired record, but checks do."""

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        for operation in operations:
            if isinstance(operation, Version):
                stored = self._ledger.records.get((partition, operation.collection, operation.key))
                if stored is not None and stored.version == operation.version:
                    operations = tuple(o for o in operations if o is not operation)
        return super()._submit(partition, operations) if operations else done((), Receipt((), ()))


@caught_by("patch_leaves_the_expiry_alone")
class PatchForgetsTheExpiry(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Patch):
            stored = self._ledger.records.get((partition, operation.collection, operation.key))
            if stored is not None and stored.body is not None:
                return Put(operation.collection, operation.key, stored.body, {**stored.fields, **operation.fields})
        return operation


@caught_by("put_and_replace_replace_the_expiry")
class TheFirstExpiryHolds(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Put | Replace) and operation.expires_in is None:
            stored = self._ledger.records.get((partition, operation.collection, operation.key))
            if stored is not None and stored.expires_at is not None:
                left = (stored.expires_at - self.clock.steady()) / 1_000_000
                return replace(operation, expires_in=max(left, 0.0))
        return operation


@caught_by("sweep_removes_expired_records")
class SweepKnowsNoLimit(Broken):
    async def _sweep(self, limit: int) -> Swept:
        return await super()._sweep(limit * 100)


# ---------------------------------------------------------------------------------------------------------- values


@caught_by("bodies_are_stored_byte_for_byte")
class BodiesAreEncodedAgain(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Put | Insert | Replace):
            try:
                return replace(operation, body=json.dumps(json.loads(operation.body)).encode())
            except ValueError:
                return operation
        return operation


@caught_by("entries_are_stored_byte_for_byte")
class EntriesEndAtNul(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Append):
            cut = tuple(replace(draft, data=draft.data.split(b"\0")[0]) for draft in operation.entries)
            return replace(operation, entries=cut)
        return operation


@caught_by("ten_megabytes_are_stored")
class LongBodiesAreCut(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Put):
            return replace(operation, body=operation.body[:1_000_000])
        return operation


@caught_by("similar_keys_are_different")
class KeysIgnoreCase(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Insert):
            return replace(operation, key=operation.key.lower())
        return operation


@caught_by("fields_keep_their_types")
class WholeNumbersBecomeReal(Broken):
    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]:
        found = await super()._get_many(partition, collection, keys)
        return [
            record and replace(record, fields={n: float(v) if type(v) is int else v for n, v in record.fields.items()})
            for record in found
        ]


# ------------------------------------------------------------------------------------------------------ partitions


@caught_by("a_record_of_another_partition_does_not_exist")
class RecordsLeakIntoOtherPartitions(Broken):
    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]:
        found = list(await super()._get_many(partition, collection, keys))
        for other in await self._partitions("", 100):
            for number, record in enumerate(await super()._get_many(other, collection, keys)):
                found[number] = found[number] or record
        return found


@caught_by("partitions_with_similar_names_are_different")
class PartitionsIgnoreCase(Broken):
    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        return super().commit(partition.lower(), *operations)


@caught_by("partitions_are_listed_in_order")
class PartitionsComeInAnyOrder(Broken):
    async def _partitions(self, after: str, limit: int) -> Sequence[str]:
        return sorted(await super()._partitions(after, limit), reverse=True)


@caught_by("a_fence_of_another_partition_does_not_exist")
class WorkLeaksIntoOtherPartitions(Broken):
    async def work(self, partition: str, queue: str, key: str) -> WorkItem | None:
        return await super().work(partition, queue, key) or await super().work("p", queue, key)


@caught_by("a_stream_of_another_partition_does_not_exist")
class StreamsLeakIntoOtherPartitions(Broken):
    async def log_state(self, partition: str, log: str, stream: str) -> LogState:
        return await super().log_state("p", log, stream)


@caught_by("a_key_can_not_reach_into_another_partition")
class PartitionAndKeyRunTogether(Broken):
    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]:
        first, _, rest = partition.partition("/")
        joined = [f"{rest}/{key}" if rest else key for key in keys]
        return await super()._get_many(first, collection, joined)


@caught_by("collections_do_not_mix")
class CollectionsMix(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Delete):
            other = "things" if operation.collection == "plain" else "plain"
            super()._submit(partition, (Delete(other, operation.key),))
        return operation


@caught_by("replace_writes_only_over_its_version")
class ReplaceWritesOverNewerVersions(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Replace):
            stored = self._ledger.records.get((partition, operation.collection, operation.key))
            if stored is not None and stored.version > operation.version:
                return replace(operation, version=stored.version)
        return operation


@caught_by("similar_dedupe_keys_are_different")
class DedupeKeysIgnoreCase(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Append):
            low = tuple(replace(draft, dedupe=draft.dedupe and draft.dedupe.lower()) for draft in operation.entries)
            return replace(operation, entries=low)
        return operation


@caught_by("a_patched_body_stays_byte_for_byte")
class PatchStripsTheBody(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Patch):
            stored = self._ledger.records.get((partition, operation.collection, operation.key))
            if stored is not None and stored.body is not None:
                fields = {**stored.fields, **operation.fields}
                return Put(operation.collection, operation.key, stored.body.strip(), fields)
        return operation


@caught_by("a_rewritten_record_is_not_swept")
class SweepRemovesWhatWasWrittenAnew(Broken):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._once: set[tuple[str, str, str]] = set()

    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Put) and operation.expires_in is not None:
            self._once.add((partition, operation.collection, operation.key))
        return operation

    async def _sweep(self, limit: int) -> Swept:
        for partition, collection, key in self._once:
            super()._submit(partition, (Delete(collection, key),))
        return await super()._sweep(limit)
