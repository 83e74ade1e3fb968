"""The store's mark and last fence: in the registry of a single server, and in each slot of a cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from keelbolt.kernel.judge import MICROSECONDS
from keelbolt.kernel.redis.servers import RedisServers
from keelbolt.kernel.write_blocks import MarkState, WriteBlock, lapsed

TOGETHER = 2048  # concurrent calls


class RedisJournal:
    def __init__(self, store: RedisServers) -> None:
        self._store = store

    async def _all(self, call: Callable[[bytes], Awaitable[Any]]) -> list[Any]:
        """Call every journal, the registry's last: a value in the registry is then in all journals."""
        *others, own = self._store.journals()
        found: list[Any] = []
        for start in range(0, len(others), TOGETHER):
            found += await asyncio.gather(*map(call, others[start : start + TOGETHER]))
        return [*found, await call(own)]

    # ------------------------------------------------------------------------------------------------------- mark

    async def mark(self) -> WriteBlock | None:
        """Return the mark, or None if it has expired."""
        mark, now = await self.look()
        return mark if mark is not None and not mark.over(now) else None

    async def look(self) -> tuple[WriteBlock | None, int]:
        """Return the mark and the server's time."""
        store = self._store
        base = store.layout.registry
        text, now = await asyncio.gather(store.look(b"GET", store.journal(base) + b"mark"), store.time_at(base))
        return WriteBlock.load(text.decode() if text else None), now

    async def set_mark(
        self, state: MarkState | None, copy: str, *, seconds: float | None = None, if_held: bool = False
    ) -> None:
        words = (
            (state or "").encode(),
            json.dumps(copy).encode(),
            b"" if seconds is None else b"%d" % int(seconds * MICROSECONDS),
            b"1" if if_held else b"",
        )
        if not all(await self._all(lambda journal: self._store.note("mark", journal, *words))):
            raise lapsed()

    async def release(self) -> None:
        """Remove the mark; in the registry last, together with the copy's note."""
        if not self._store.single:
            await self.set_mark(None, "")
        await self._store.note("release", self._store.layout.registry)

    # ----------------------------------------------------------------------------------------------------- fences

    async def last_fence(self) -> int:
        """Return the highest fence issued. Fences contain the time, so later ones are not lower."""
        fences = await self._all(lambda journal: self._store.look(b"GET", journal + b"fence"))
        return max(int(fence or 0) for fence in fences)

    async def raise_fence(self, fence: int) -> None:
        await self._all(lambda journal: self._store.note("raise_fence", journal, b"%d" % fence))
