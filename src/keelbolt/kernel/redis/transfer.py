"""Access to the whole store of a server or cluster, for copies.

**A server has no snapshots.** `reading` returns the current data, so a copy or a backup refuses writes while it reads.

**No transaction spans two slots.** Rows are written before the note that counts them, and rewriting a row has no
effect: a copy that was killed in between writes some rows twice.

**Names** are listed by SCAN, once per reading, and sorted on the copier's disk (`keelbolt.kernel.redis.names`): so
each row is read once, in an order in which an interrupted copy can continue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from keelbolt.kernel.declared import CheckedCollection, Declarations
from keelbolt.kernel.redis.catalog import RedisCatalog
from keelbolt.kernel.redis.export import StoreSource
from keelbolt.kernel.redis.journal import RedisJournal
from keelbolt.kernel.redis.load import RedisLoader
from keelbolt.kernel.redis.servers import RedisServers
from keelbolt.kernel.transfer.ports import Source, Transfer
from keelbolt.kernel.transfer.rows import CollectionRow, Row, Table
from keelbolt.kernel.write_blocks import MarkState, WriteBlock

NOTE = b"copy"
WIPED = 1000  # keys per page
_KEPT = (b"format", b"generation", b"mark", b"fence")  # kept in the registry and the journals by a wipe


class StoreTransfer(Transfer):
    snapshots = False

    def __init__(self, store: RedisServers, catalog: RedisCatalog, declared: Declarations) -> None:
        self._store = store
        self._catalog = catalog
        self._declared = declared
        self._journal = RedisJournal(store)
        self._loader = RedisLoader(store, catalog)

    def place(self) -> str:
        return f"{self._store.place}?namespace={self._store.layout.namespace}"

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Source]:
        source = StoreSource(self._store)
        try:
            yield source
        finally:
            source.close()

    # ---------------------------------------------------------------------------------------------------- writing

    async def holds_data(self) -> bool:
        if await self._store.read_registry(b"ZCARD", b"partitions"):
            return True
        async for key in self._store.keys(self._store.layout.pattern):
            place = self._store.layout.parse(key)
            if place is not None and not place[1].startswith(b"x/"):  # stored replies to calls are not data
                return True
        return False

    async def put(self, table: Table, rows: Sequence[Row], note: str) -> None:
        if table == "collection":
            for row in rows:
                assert isinstance(row, CollectionRow)
                await self._declare(CheckedCollection.load(row.name, row.declaration))
        else:
            await self._loader.put(table, rows)
        await self.set_note(note)

    async def _declare(self, shape: CheckedCollection) -> None:
        self._declared.shapes[shape.name] = shape
        await self._catalog.declare(shape)

    async def raise_fence(self, fence: int) -> None:
        await self._journal.raise_fence(fence)

    async def wipe(self) -> None:
        """Delete all data. Declarations keep counting versions: other processes may have cached an earlier one."""
        store = self._store
        await self._catalog.load()
        last = max((entry.version for entry in self._catalog.entries.values()), default=0)
        await store.keep(b"SET", store.layout.registry + b"generation", b"%d" % last)
        page: list[bytes] = []
        async for key in store.keys(store.layout.pattern):
            if store.layout.parse(key) is not None or key.rpartition(b"}:")[2] not in _KEPT:
                page.append(key)
            if len(page) >= WIPED:
                await self._unlink(page)
                page = []
        await self._unlink(page)
        self._catalog.wiped()
        store.forget_partitions()

    async def _unlink(self, keys: Sequence[bytes]) -> None:
        await asyncio.gather(*(self._store.keep(b"UNLINK", key) for key in keys))

    # --------------------------------------------------------------------------------------- the note and the mark

    async def note(self) -> str | None:
        note: bytes | None = await self._store.read_registry(b"GET", NOTE)
        return note.decode() if note is not None else None

    async def set_note(self, note: str) -> None:
        await self._store.keep(b"SET", self._store.layout.registry + NOTE, note.encode())

    async def mark(self) -> WriteBlock | None:
        return await self._journal.mark()

    async def set_mark(
        self, state: MarkState | None, copy: str, *, seconds: float | None = None, if_held: bool = False
    ) -> None:
        await self._journal.set_mark(state, copy, seconds=seconds, if_held=if_held)

    async def release(self) -> None:
        """End the copy. Declares collections of this process that the copy lacks."""
        for name, shape in self._declared.shapes.items():
            if not self._catalog.has(name):
                await self._catalog.declare(shape)
        await self._journal.release()
