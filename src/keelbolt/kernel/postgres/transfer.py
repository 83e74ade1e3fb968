"""Access to a whole schema for copies: reads from one snapshot, writes page by page, and sets the store's mark."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlsplit

from keelbolt.errors import CopyOutdated
from keelbolt.kernel.postgres.connection import ERRORS, Connection, UniqueViolationError, close_quietly, translate
from keelbolt.kernel.postgres.export import SETTINGS, SchemaSource, transfer_statements
from keelbolt.kernel.postgres.load import PostgresLoader
from keelbolt.kernel.postgres.locks import catalog_lock
from keelbolt.kernel.transfer.ports import Source, Transfer
from keelbolt.kernel.transfer.rows import Row, Table
from keelbolt.kernel.write_blocks import MARK, MarkState, WriteBlock, changed_mark

NOTE = "copy"

Writing = Callable[[], AbstractAsyncContextManager[Connection]]


class SchemaTransfer(Transfer):
    def __init__(
        self,
        *,
        connect: Callable[[], Awaitable[Connection]],
        writing: Writing,
        sql: dict[str, str],
        schema: str,
        url: str,
        learn: Callable[[], Awaitable[None]],
    ) -> None:
        self._connect = connect
        self._writing = writing
        self._sql = sql | transfer_statements(schema)
        self._schema = schema
        self._url = url
        self._learn = learn
        self._lock = catalog_lock(schema)
        self._loader = PostgresLoader(self._sql, schema, self._lock)

    def place(self) -> str:
        parts = urlsplit(self._url)
        hosts = parts.netloc.rpartition("@")[2].lower().split(",")
        named = ",".join(host if re.search(r":\d+$", host) else f"{host}:5432" for host in hosts)
        return f"postgresql://{named}{parts.path}?schema={self._schema}"

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Source]:
        connection = None
        try:
            try:
                connection = await self._connect()
                await connection.execute(SETTINGS)
                now = await connection.fetchval(self._sql["now"])
            except ERRORS as error:
                raise translate(error) from error
            yield SchemaSource(connection, self._sql, now)
        finally:
            await close_quietly(connection)

    async def _rows(self, query: str, *values: Any) -> list[Any]:
        async with self._writing() as connection:
            rows: list[Any] = await connection.fetch(self._sql[query], *values)
            return rows

    # ---------------------------------------------------------------------------------------------------- writing

    async def holds_data(self) -> bool:
        return bool((await self._rows("holds_data"))[0][0])

    async def put(self, table: Table, rows: Sequence[Row], note: str) -> None:
        try:
            async with self._writing() as connection:
                await self._loader.put(connection, table, rows)
                await connection.execute(self._sql["set_meta"], NOTE, note)
        except BaseException as error:
            self._loader.forget()
            if isinstance(error.__cause__, UniqueViolationError):
                raise CopyOutdated from error
            raise
        if table == "collection":
            await self._learn()

    async def raise_fence(self, fence: int) -> None:
        await self._rows("raise_ids", fence)

    async def wipe(self) -> None:
        async with self._writing() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", self._lock)
            for query in ("wipe", "wipe_meta", "new_catalog"):
                await connection.execute(self._sql[query])
        self._loader.forget()

    # --------------------------------------------------------------------------------------- the note and the mark

    async def note(self) -> str | None:
        note: str | None = (await self._rows("get_meta", NOTE))[0][1]
        return note

    async def set_note(self, note: str) -> None:
        await self._rows("set_meta", NOTE, note)

    async def mark(self) -> WriteBlock | None:
        now, text = (await self._rows("get_meta", MARK))[0]
        mark = WriteBlock.load(text)
        return mark if mark is not None and not mark.over(now) else None

    async def set_mark(
        self, state: MarkState | None, copy: str, *, seconds: float | None = None, if_held: bool = False
    ) -> None:
        async with self._writing() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", self._lock)
            await connection.execute(self._sql["settle_marks"])
            now, text = await connection.fetchrow(self._sql["get_meta"], MARK)
            mark = changed_mark(WriteBlock.load(text), state, copy, now=now, seconds=seconds, if_held=if_held)
            if mark is None:
                await connection.execute(self._sql["delete_meta"], [MARK])
            else:
                await connection.execute(self._sql["set_meta"], MARK, mark.dump())

    async def release(self) -> None:
        await self._rows("delete_meta", [NOTE, MARK])
