"""Reads logs: requests that arrive while a query is running are combined into the next query.

A thousand streams that follow their logs thus share a few queries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from keelbolt.kernel.logs import Entry, LogPage
from keelbolt.kernel.postgres.connection import short

PAGES = 64  # per query

Fetch = Callable[..., Awaitable[Sequence[Any]]]


@dataclass(slots=True)
class _Wish:
    place: tuple[str, str, str, int, int, int, int]
    backward: bool
    future: asyncio.Future[LogPage]


class Pages:
    def __init__(self, rows: Fetch) -> None:
        self._rows = rows
        self._wishes: list[_Wish] = []
        self._task: asyncio.Task[None] | None = None

    async def read(
        self,
        partition: str,
        log: str,
        stream: str,
        after: int,
        before: int,
        *,
        limit: int,
        max_bytes: int,
        backward: bool,
    ) -> LogPage:
        place = (partition, log, short(stream), after, before, limit, max_bytes)
        wish = _Wish(place, backward, asyncio.get_running_loop().create_future())
        self._wishes.append(wish)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="keelbolt-pages")
        return await wish.future

    async def _run(self) -> None:
        while self._wishes:
            backward = self._wishes[0].backward
            some = [wish for wish in self._wishes if wish.backward == backward][:PAGES]
            self._wishes = [wish for wish in self._wishes if wish not in some]
            try:
                await self._answer(some, backward=backward)
            except Exception as error:  # noqa: BLE001 - passed to every reader
                for wish in some:
                    if not wish.future.done():
                        wish.future.set_exception(error)
        self._task = None

    async def _answer(self, wishes: Sequence[_Wish], *, backward: bool) -> None:
        columns = zip(*(wish.place for wish in wishes), strict=True)
        pages: dict[int, tuple[int, int, list[Entry]]] = {}
        rows = await self._rows("read_down" if backward else "read_up", *columns)
        for place, head, floor, seq, kind, data, at in rows:
            page = pages.setdefault(place, (head, floor, []))
            if seq is not None:
                page[2].append(Entry(seq, kind, data, at))
        for place, wish in enumerate(wishes, 1):
            head, floor, entries = pages.get(place, (0, 0, []))
            if not wish.future.done():
                wish.future.set_result(LogPage(tuple(entries), head, floor))
