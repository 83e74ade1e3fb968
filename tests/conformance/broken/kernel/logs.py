"""Faults of logs and tails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace

from keelbolt.errors import LogTrimmed
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.logs import Append, Drop, Entry, LogPage, LogState, Trim
from tests.conformance.broken.kernel.fault import Broken, caught_by, done


@caught_by("seqs_stay_dense_under_refusals_and_races")
class ARefusedAppendLeavesAGap(Broken):
    """A refused entry uses its seq: readers find a gap."""

    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        if end.exception() is not None:
            for operation in operations:
                if isinstance(operation, Append):
                    super()._submit(partition, (operation,))
        return end

    async def _read_log(self, *place: Any, **how: Any) -> LogPage:
        page = await super()._read_log(*place, **how)
        return replace(page, entries=tuple(entry for entry in page.entries if entry.data != b"lost"))


@caught_by("entries_have_their_kind_data_and_time")
class EntriesOfOneAppendAreReversed(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return replace(operation, entries=operation.entries[::-1]) if isinstance(operation, Append) else operation


@caught_by("seqs_are_dense_from_one")
class SeqsStartAtZero(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        if end.exception() is not None:
            return end
        less = (tuple(s - 1 for s in o) if isinstance(o, tuple) else o for o in end.result().outcomes)
        return done(operations, Receipt(operations, tuple(less)))


@caught_by("streams_have_their_own_seqs")
class StreamsOfALogShareTheirSeqs(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return replace(operation, stream="all") if isinstance(operation, Append) else operation


@caught_by("a_repeat_writes_nothing_and_returns_the_first_seq")
class DedupeIsIgnored(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Append):
            return replace(operation, entries=tuple(replace(draft, dedupe=None) for draft in operation.entries))
        return operation


@caught_by("a_repeat_inside_one_append_is_a_repeat")
class ARepeatInsideOneAppendIsWritten(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if not isinstance(operation, Append):
            return operation
        seen: set[str | None] = {None}
        entries = []
        for draft in operation.entries:
            entries.append(replace(draft, dedupe=None) if draft.dedupe in seen else draft)
            seen.add(draft.dedupe)
        return replace(operation, entries=tuple(entries))


@caught_by("an_entry_is_found_by_its_dedupe_key")
class ADedupeKeyIsFoundInAnyStream(Broken):
    async def _seq_of(self, partition: str, log: str, stream: str, dedupe: str) -> int | None:
        return next((seq for (_, name), seq in self._ledger.dedupes.items() if name == dedupe), None)


@caught_by("dedupe_is_per_stream")
class DedupeIsForAllStreams(Broken):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._seen: set[str] = set()

    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Append):
            keys = {draft.dedupe for draft in operation.entries if draft.dedupe is not None}
            if keys and keys <= self._seen:
                return replace(operation, stream="repeats")
            self._seen |= keys
        return operation


@caught_by("trimmed_dedupe_keys_are_forgotten")
class TrimKeepsDedupeKeys(Broken):
    def _save_logs(self) -> None:
        kept = dict(self._ledger.dedupes)
        super()._save_logs()
        self._ledger.dedupes.update(kept)

    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Append):
            state = self._ledger.streams.get((partition, operation.log, operation.stream))
            if state is not None:
                known = {name for number, name in self._ledger.dedupes if number == state.id}
                entries = tuple(draft for draft in operation.entries if draft.dedupe not in known)
                return replace(operation, entries=entries or operation.entries[:1])
        return operation


@caught_by("read_log_reads_between_its_bounds")
class BeforeIsIncluded(Broken):
    async def read_log(self, *place: Any, before: int | None = None, **how: Any) -> LogPage:
        return await super().read_log(*place, before=before and before + 1, **how)


@caught_by("read_log_reads_between_its_bounds")
class BackwardReadsTheOldest(Broken):
    async def read_log(self, *place: Any, backward: bool = False, **how: Any) -> LogPage:
        page = await super().read_log(*place, **how)
        return replace(page, entries=page.entries[::-1]) if backward else page


@caught_by("a_page_keeps_its_byte_budget")
class TheByteBudgetIsIgnored(Broken):
    async def read_log(self, *place: Any, max_bytes: int = 1, **how: Any) -> LogPage:
        return await super().read_log(*place, **how)


@caught_by("reading_below_the_floor_raises")
class TrimmedEntriesAreSkippedSilently(Broken):
    async def read_log(self, *place: Any, after: int | None = None, **how: Any) -> LogPage:
        try:
            return await super().read_log(*place, after=after, **how)
        except LogTrimmed as trimmed:
            return await super().read_log(*place, after=trimmed.floor, **how)


@caught_by("trim_raises_the_floor")
class TrimKeepsItsLast(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return replace(operation, through=max(operation.through - 1, 0)) if isinstance(operation, Trim) else operation


@caught_by("trim_stops_at_the_head_and_never_lowers_the_floor")
class TrimGoesBeyondTheHead(Broken):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._beyond: dict[str, int] = {}

    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Trim):
            self._beyond[operation.stream] = operation.through
        return operation

    async def _log_state(self, partition: str, log: str, stream: str) -> LogState:
        state = await super()._log_state(partition, log, stream)
        return replace(state, floor=max(state.floor, self._beyond.get(stream, 0)))


@caught_by("drop_forgets_the_stream")
class DropOnlyTrims(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        return Trim(operation.log, operation.stream, 1 << 40) if isinstance(operation, Drop) else operation


@caught_by("a_stream_that_was_never_written_is_empty")
class AnEmptyLogHasAHead(Broken):
    async def _log_state(self, partition: str, log: str, stream: str) -> LogState:
        state = await super()._log_state(partition, log, stream)
        return state if state.head else LogState(1, 1)


@caught_by("tail_has_no_gap_and_no_repeat")
class TailsSkipAnEntry(Broken):
    async def tail(self, partition: str, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        async for entry in super().tail(partition, log, stream, after=after):
            if entry.seq % 97:
                yield entry


@caught_by("tail_begins_with_stored_entries")
class TailsRepeatTheLastEntry(Broken):
    async def tail(self, partition: str, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        async for entry in super().tail(partition, log, stream, after=after and after - 1):
            yield entry


@caught_by("tail_continues_with_new_entries")
class TailsEndWhenTheyHaveCaughtUp(Broken):
    async def tail(self, partition: str, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        for entry in (await self.read_log(partition, log, stream, after=after)).entries:
            yield entry
        await asyncio.sleep(3600)


@caught_by("tail_is_complete_over_many_pages")
class TailsReadOnlyTheFirstPage(Broken):
    async def tail(self, partition: str, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        first = await self.read_log(partition, log, stream, after=after)
        for entry in first.entries:
            yield entry
        async for entry in super().tail(partition, log, stream, after=first.head):
            yield entry


@caught_by("a_tail_that_is_overtaken_by_a_trim_raises")
class TailsJumpOverTrimmedEntries(Broken):
    async def tail(self, partition: str, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        while True:
            try:
                async for entry in super().tail(partition, log, stream, after=after):
                    yield entry
                    after = entry.seq
            except LogTrimmed as trimmed:
                after = trimmed.floor


@caught_by("tail_sees_only_its_stream")
class TailsMixPartitions(Broken):
    async def tail(self, partition: str, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        while True:
            for each in await self.partitions():
                for entry in (await self.read_log(each, log, stream, after=after)).entries:
                    yield entry
            await asyncio.sleep(0.01)


@caught_by("tail_below_the_floor_raises")
class TailsBeginAtTheFloor(Broken):
    async def tail(self, partition: str, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        floor = (await self.log_state(partition, log, stream)).floor
        async for entry in super().tail(partition, log, stream, after=max(after or 0, floor)):
            yield entry


@caught_by("tail_sees_no_refused_entry")
class TailsSeeRefusedEntries(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        end = super()._submit(partition, operations)
        if end.exception() is not None and (kept := tuple(o for o in operations if isinstance(o, Append))):
            super()._submit(partition, kept)
        return end


@caught_by("every_tail_sees_the_same")
class TailsShareTheEntries(Broken):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._seen: set[int] = set()

    async def tail(self, partition: str, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        async for entry in super().tail(partition, log, stream, after=after):
            if entry.seq not in self._seen:
                self._seen.add(entry.seq)
                yield entry


@caught_by("concurrent_appends_with_one_dedupe_key_write_once")
class DedupeForgetsWhatIsOnItsWay(Broken):
    """Compares only with dedupe keys that were stored before the batch."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._now: set[str] = set()

    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Append):
            keys = {draft.dedupe for draft in operation.entries if draft.dedupe}
            known = keys & self._now
            self._now |= keys
            asyncio.get_running_loop().call_soon(self._now.clear)
            entries = (replace(draft, dedupe=None) if draft.dedupe in known else draft for draft in operation.entries)
            return replace(operation, entries=tuple(entries))
        return operation
