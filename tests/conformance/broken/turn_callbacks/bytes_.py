"""Faults of bytes."""

from __future__ import annotations

from typing import Any

from keelbolt.turns.in_memory import InMemoryMediaReader, InMemorySpoolReader, InMemorySpoolStore, bytes_of
from tests.conformance.broken.turn_callbacks.fault import caught_by
from tests.conformance.broken.turn_callbacks.kept import PLACES, Data, Kept, Row, Spooled, again


class _Once(InMemoryMediaReader):
    def stream(self) -> Any:
        found = super().stream()
        self._data = b""
        return found


@caught_by("bytes_can_be_read_at_once")
class GivesReadersForOneUse(Kept):
    async def media(self, ctx: Any, key: str, data: Any) -> Any:
        return _Once(await bytes_of(data))


@caught_by("streams_are_stored_completely")
class TakesOnePieceOfAStream(Kept):
    async def text(self, ctx: Any, key: str, data: Any) -> Any:
        if hasattr(data, "__aiter__"):
            async for piece in data:
                return await super().text(ctx, key, piece)
        return await super().text(ctx, key, data)


class _SplitLines(Spooled):
    def _all(self) -> list[bytes]:
        return [line.encode() for line in self._data.decode().splitlines()]


@caught_by("lines_end_at_line_feeds_only")
class SplitsAsPythonDoes(Kept):
    async def text(self, ctx: Any, key: str, data: Any) -> Any:
        return _SplitLines(await bytes_of(data), self.spool_key(ctx, key))


@caught_by("bytes_are_read_through_the_fetched_value")
class HasASpoolForEachCall(Kept):
    """Readers work, but bytes are not found by the id that they were written under."""

    async def text(self, ctx: Any, key: str, data: Any) -> Any:
        reader = await InMemorySpoolStore().write(key, data)
        return Spooled(b"".join([piece async for piece in reader.stream()]), self.spool_key(ctx, key))

    async def read(self, row: Row) -> Any:
        if row.spool is None:
            return row.value
        from keelbolt.turns.primitives import SpooledArtifact

        reader = await self.data.spools.read(row.spool)
        return again(row.value, SpooledArtifact(reader or InMemorySpoolReader(b"")))


class _Live(Spooled):
    def __init__(self, store: InMemorySpoolStore, key: str) -> None:
        self._store = store
        super().__init__(b"", key)

    async def read_all(self) -> str:
        found = await self._store.read(self.key)
        return await found.read_all() if found is not None else ""


@caught_by("a_reader_is_not_changed_by_a_later_write", "bytes_of_tenants_are_separate")
class ReadsWhatIsThereNow(Kept):
    def spool_key(self, ctx: Any, key: str) -> str:
        return key

    async def text(self, ctx: Any, key: str, data: Any) -> Any:
        await self.data.spools.write(key, data)
        return _Live(self.data.spools, key)


@caught_by("bytes_survive")
class KeepsBytesInMemory(HasASpoolForEachCall):
    """Records survive a reopen, bytes do not."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.data = PLACES[place] = Data(rows=self.data.rows)

    async def text(self, ctx: Any, key: str, data: Any) -> Any:
        return await Kept.text(self, ctx, key, data)
