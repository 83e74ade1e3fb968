"""Faults of find and count."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from keelbolt.errors import BadCursor, NoIndex
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.declarations import CheckedCollection
from keelbolt.kernel.ledger import Key, RecordState
from keelbolt.kernel.memory.content import Indexes
from keelbolt.kernel.records import Count, Delete, Page, Patch, Put, Query, Record
from tests.conformance.broken.kernel.fault import Broken, caught_by


@caught_by("pages_do_not_lose_equal_values")
class CursorsSkipTies(Broken):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._ends: dict[str, Record] = {}

    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        page = await super().find(partition, query, limit=limit, cursor=cursor)
        if page.cursor is not None:
            self._ends[page.cursor] = page.records[-1]
        if cursor in self._ends and query.order is not None:
            last = self._ends[cursor].fields.get(query.order)
            page = replace(page, records=tuple(r for r in page.records if r.fields.get(query.order) != last))
        return page


@caught_by("a_cursor_survives_inserts_and_deletes")
class CursorsAreOffsets(Broken):
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        page = await super().find(partition, query, limit=10_000)
        start = int(cursor or "0")
        more = start + limit < len(page.records)
        return Page(page.records[start : start + limit], str(start + limit) if more else None, page.started_at)


@caught_by("find_returns_exactly_the_matching_records")
class TheDirectionIsIgnored(Broken):
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        return await super().find(partition, replace(query, newest_first=False), limit=limit, cursor=cursor)


@caught_by("find_returns_exactly_the_matching_records")
class UntilIsIncluded(Broken):
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        if type(query.until) is int:
            query = replace(query, until=query.until + 1)
        return await super().find(partition, query, limit=limit, cursor=cursor)


@caught_by("found_records_are_complete")
class FoundRecordsHaveNoBody(Broken):
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        page = await super().find(partition, query, limit=limit, cursor=cursor)
        return replace(page, records=tuple(replace(record, body=b"") for record in page.records))


@caught_by("the_last_page_has_no_cursor")
class AFullPageHasACursor(Broken):
    """Returns a cursor after every full page, also after the last."""

    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        if cursor == "end":
            return Page((), None, 0)
        page = await super().find(partition, query, limit=limit, cursor=cursor)
        return replace(page, cursor="end") if page.cursor is None and len(page.records) == limit else page


@caught_by("the_start_of_a_listing_stays_the_same")
class EveryPageStartsAnew(Broken):
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        page = await super().find(partition, query, limit=limit, cursor=cursor)
        return replace(page, started_at=self.clock.wall())


@caught_by("a_cursor_belongs_to_its_query")
class ForeignCursorsStartAnew(Broken):
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        try:
            return await super().find(partition, query, limit=limit, cursor=cursor)
        except BadCursor:
            return await super().find(partition, query, limit=limit)


@caught_by("a_query_needs_its_index")
class QueriesWithoutIndexFindNothing(Broken):
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        try:
            return await super().find(partition, query, limit=limit, cursor=cursor)
        except NoIndex:
            return Page((), None, 0)


class _Frozen(Indexes):
    def change(self, shape: CheckedCollection, key: Key, new: RecordState | None) -> None:
        pass


@caught_by("find_sees_every_change_of_a_field")
class PatchLeavesTheIndexes(Broken):
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        indexes = self._indexes
        if any(isinstance(operation, Patch) for operation in operations):
            self._indexes = _Frozen()
        try:
            return super()._submit(partition, operations)
        finally:
            self._indexes = indexes


@caught_by("strings_are_ordered_by_code_points")
class TextsAreOrderedWithoutCase(Broken):
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        page = await super().find(partition, query, limit=limit, cursor=cursor)
        if query.order != "text":
            return page
        return replace(page, records=tuple(sorted(page.records, key=lambda r: str(r.fields.get("text")).lower())))


@caught_by("filters_compare_whole_strings")
class LongValuesAreCut(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Put):
            cut = {name: value[:200] if isinstance(value, str) else value for name, value in operation.fields.items()}
            return replace(operation, fields=cut)
        return operation


@caught_by("none_is_a_distinct_value")
class NoneIsTheEmptyString(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Put) and operation.collection == "things":
            return replace(operation, fields={"state": "", **operation.fields})
        return operation


@caught_by("declared_counters_are_exact")
class CountersForgetDeletes(Broken):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._drift = 0

    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Delete):
            self._drift += (partition, operation.collection, operation.key) in self._ledger.records
        return operation

    async def count(self, partition: str, query: Query, *, cap: int = 10_000) -> Count:
        count = await super().count(partition, query, cap=cap)
        return replace(count, value=count.value + (self._drift if not query.equal else 0))


@caught_by("without_a_counter_count_stops_at_its_cap")
class CappedCountsClaimToBeExact(Broken):
    async def count(self, partition: str, query: Query, *, cap: int = 10_000) -> Count:
        return replace(await super().count(partition, query, cap=cap), exact=True)


@caught_by("integers_are_ordered_by_value")
class NumbersAreOrderedAsText(Broken):
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        page = await super().find(partition, query, limit=limit, cursor=cursor)
        if query.order != "whole":
            return page
        return replace(page, records=tuple(sorted(page.records, key=lambda r: str(r.fields.get("whole")))))


@caught_by("floats_are_ordered_by_value")
class SmallNumbersAreZero(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Put) and type(operation.fields.get("real")) is float:
            return replace(operation, fields={"real": round(float(operation.fields["real"] or 0), 6)})
        return operation


@caught_by("keys_are_ordered_by_code_points")
class KeysAreOrderedWithoutCase(Broken):
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        page = await super().find(partition, query, limit=limit, cursor=cursor)
        return replace(page, records=tuple(sorted(page.records, key=lambda record: record.key.lower())))


@caught_by("long_strings_come_exactly_once")
class LongTextsAreOne(Broken):
    async def find(self, partition: str, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        page = await super().find(partition, query, limit=limit, cursor=cursor)
        return replace(page, records=tuple({record.key[:200]: record for record in page.records}.values()))


@caught_by("flags_filter")
class FalseIsNone(Broken):
    def change(self, partition: str, operation: Operation) -> Operation:
        if isinstance(operation, Put) and operation.fields.get("flag") is False:
            return replace(operation, fields={**operation.fields, "flag": None})
        return operation


@caught_by("a_cursor_survives_changes_of_the_order")
class MovesShiftThePages(CursorsAreOffsets):
    pass


@caught_by("paging_beside_writers_is_exact")
class WritersShiftThePages(CursorsAreOffsets):
    pass
