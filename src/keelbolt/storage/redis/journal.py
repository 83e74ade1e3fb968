"""The mark of the store, what was touched while it is followed, and the fences: in one journal, or in one per slot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, cast

from keelbolt.storage.judge import MICROSECONDS
from keelbolt.storage.marks import Mark, MarkState
from keelbolt.storage.redis.store import Store
from keelbolt.storage.transfer.rows import Kind, Touched

TOGETHER = 2048  # journals that are asked at once
SOME = 64  # that are read at once
SCANNED = 1000

Field = tuple[bytes, bytes]  # place and number, as they are stored


class Journal:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def _all(self, call: Callable[[bytes], Awaitable[Any]]) -> list[Any]:
        """Call every journal; that of the registry last, so that what holds there holds everywhere."""
        *others, own = self._store.journals()
        found: list[Any] = []
        for start in range(0, len(others), TOGETHER):
            found += await asyncio.gather(*map(call, others[start : start + TOGETHER]))
        return [*found, await call(own)]

    # ------------------------------------------------------------------------------------------------------- mark

    async def mark(self) -> Mark | None:
        """The mark, unless its time is over."""
        mark, now = await self.look()
        return mark if mark is not None and not mark.over(now) else None

    async def look(self) -> tuple[Mark | None, int]:
        """The mark, and the server's time."""
        store = self._store
        base = store.layout.registry
        text, now = await asyncio.gather(store.look(b"GET", store.journal(base) + b"mark"), store.time_at(base))
        return Mark.load(text.decode() if text else None), now

    async def set_mark(self, state: MarkState | None, copy: str, *, seconds: float | None, pause: float) -> None:
        words = (
            (state or "").encode(),
            json.dumps(copy).encode(),
            b"" if seconds is None else b"%d" % int(seconds * MICROSECONDS),
            b"%d" % int(pause * MICROSECONDS),
        )
        await self._all(lambda journal: self._store.note("mark", journal, *words))

    async def release(self) -> None:
        """Take the mark away, and last, in the same step as the registry's own, the copier's note."""
        if not self._store.single:
            await self.set_mark(None, "", seconds=None, pause=0.0)
        await self._store.note("release", self._store.layout.registry)

    # ---------------------------------------------------------------------------------------------------- touched

    async def touched(self, limit: int) -> list[Touched]:
        sizes = await self._all(lambda journal: self._store.look(b"HLEN", journal + b"touched"))
        places = [place for place, size in zip(self._store.journals(), sizes, strict=True) if size]
        found: dict[bytes, bytes] = {}
        for start in range(0, len(places), SOME):
            if len(found) >= limit:
                break
            some = places[start : start + SOME]
            await asyncio.gather(*(self._scan(journal + b"touched", found, limit) for journal in some))
        return [_touched(*field) for field in islice(found.items(), limit)]

    async def _scan(self, key: bytes, found: dict[bytes, bytes], limit: int) -> None:
        cursor = b"0"
        while True:
            cursor, fields = await self._store.look(b"HSCAN", key, cursor, b"COUNT", b"%d" % SCANNED)
            found.update(zip(fields[::2], fields[1::2], strict=True))
            if cursor == b"0" or len(found) >= limit:
                return

    async def forget(self, touched: Sequence[Touched]) -> None:
        words: dict[bytes, list[bytes]] = {}
        for each in touched:
            journal = self._store.journal(self._store.layout.base(each.partition))
            words.setdefault(journal, []).extend(_field(each))
        await asyncio.gather(*(self._store.note("forget", journal, *fields) for journal, fields in words.items()))

    async def forget_all(self) -> None:
        await self._all(lambda journal: self._store.keep(b"UNLINK", journal + b"touched"))

    # ----------------------------------------------------------------------------------------------------- fences

    async def last_fence(self) -> int:
        """The clock is part of a fence: one that is given out now is not less."""
        fences = await self._all(lambda journal: self._store.look(b"GET", journal + b"fence"))
        return max(int(fence or 0) for fence in fences)

    async def raise_fence(self, fence: int) -> None:
        await self._all(lambda journal: self._store.note("raise_fence", journal, b"%d" % fence))


def _touched(place: bytes, number: bytes) -> Touched:
    kind, partition, family, name = place.decode().split("\0")
    return Touched(int(number.rstrip(b"!")), cast("Kind", kind), partition, family, name, number.endswith(b"!"))


def _field(each: Touched) -> Field:
    place = f"{each.kind}\0{each.partition}\0{each.family}\0{each.name}"
    return place.encode(), b"%d%b" % (each.number, b"!" if each.reset else b"")
