"""The connection pool for reads and short transactions. Calls wait while the server is unreachable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from keelbolt.errors import StorageBusy, StorageClosed, StorageUnreachable
from keelbolt.kernel.meter import Meter
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
    translate,
)

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
