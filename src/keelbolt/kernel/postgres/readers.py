"""The connection pool for reads and short transactions. Calls wait while the server is unreachable.

Requests for pages of logs that arrive while a query is running are combined into the next query: a thousand streams
that follow their logs share a few queries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from keelbolt.errors import StorageBusy, StorageClosed, StorageUnreachable
from keelbolt.kernel.logs import Entry, LogPage
from keelbolt.kernel.postgres.connection import (
    BY_KEYS,
    ERRORS,
    ISOLATION,
    OUTAGE_SECONDS,
    SLOW_SECONDS,
    STATEMENT_SECONDS,
    Connection,
    create_pool,
    set_local,
    short,
    translate,
)
from keelbolt.observability.metrics import Meter

T = TypeVar("T")

_WHOLE_TABLES = set_local({name: "on" for name in BY_KEYS if name.startswith("enable_")} | {"statement_timeout": "0"})


class PostgresReaders:
    def __init__(self, pool: Any, sql: dict[str, str], *, settings: dict[str, str], meter: Meter) -> None:
        self.pool = pool
        self._meter = meter
        self._sql = sql
        self._settings = set_local(settings)

    @classmethod
    async def open(
        cls, url: str, sql: dict[str, str], *, size: int, pooled: bool, settings: dict[str, str], meter: Meter
    ) -> PostgresReaders:
        pool = await create_pool(url, size=size, pooled=pooled, settings=settings)
        return cls(pool, sql, settings=settings if pooled else {}, meter=meter)

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self.pool.close(), 5.0)
        except TimeoutError:
            self.pool.terminate()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """Acquire a connection; driver errors are raised as Keelbolt errors."""
        try:
            connection = await self.pool.acquire(timeout=STATEMENT_SECONDS)
        except ERRORS as error:
            raise self._counted(self._why_none(error)) from error
        try:
            try:
                yield connection
            finally:
                await self.pool.release(connection)
        except ERRORS as error:
            raise self._counted(translate(error)) from error

    def _counted(self, error: Exception) -> Exception:
        self._meter.failed(error)
        return error

    def _why_none(self, error: BaseException) -> Exception:
        if self.pool.is_closing():
            return StorageClosed()
        if isinstance(error, TimeoutError) and self.pool.get_size() >= self.pool.get_max_size():
            return StorageBusy("all connections of this storage are in use; nothing was written. Try again")
        return translate(error)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Connection]:
        """Open a short transaction, independent of the committer."""
        async with self.reading() as connection, connection.transaction(isolation=ISOLATION):
            if self._settings:
                await connection.execute(self._settings)
            yield connection

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[Callable[..., Awaitable[list[Any]]]]:
        """Open a read-only snapshot for queries without a statement timeout, which large stores need."""
        async with self.reading() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute(_WHOLE_TABLES)

            async def look(query: str, *values: Any) -> list[Any]:
                rows: list[Any] = await connection.fetch(self._sql[query], *values, timeout=SLOW_SECONDS)
                return rows

            yield look

    async def rows(self, query: str, *values: Any) -> list[Any]:
        """Return the rows of a statement that is safe to run twice."""

        async def fetch() -> list[Any]:
            async with self.reading() as connection:
                rows: list[Any] = await connection.fetch(self._sql[query], *values)
                return rows

        return await self.patiently(fetch)

    async def row(self, query: str, *values: Any) -> Any:
        rows = await self.rows(query, *values)
        return rows[0] if rows else None

    async def patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Retry the call while the server is unreachable, for as long as a commit would wait."""
        until = time.monotonic() + OUTAGE_SECONDS
        pause = 0.02
        while True:
            try:
                return await call()
            except StorageUnreachable:
                if time.monotonic() + pause > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)


# ---------------------------------------------------------------------------------------------------------------- pages


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
