"""The registry of a store: its declarations, its mark and its last fence.

Declarations apply to all processes, also to one that declared something else. A changed declaration gets a new version
and new indexes. Each partition adopts it separately: first, all its new writes go to the new indexes; then its older
records are added one by one; when that is done, the indexes can be queried. Any process that meets a partition that is
not up to date does this work, so it does not depend on the process that declared the change.

In a cluster, the mark and the last fence are in each slot.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from keelbolt.errors import SchemaMismatch, SchemaTooNew
from keelbolt.kernel.declarations import CheckedCollection
from keelbolt.kernel.judge import MICROSECONDS
from keelbolt.kernel.redis.servers import RedisServers
from keelbolt.kernel.transfer.ports import MarkState, WriteBlock, lapsed

FORMAT = 2  # of keys and values, as defined in the Lua files; in format 1, logs were streams of the server
RELIST_LOGS = 200
REINDEX_KEYS = 200


@dataclass(frozen=True, slots=True)
class RedisCatalogEntry:
    version: int
    shape: CheckedCollection
    text: bytes


class RedisCatalog:
    def __init__(self, store: RedisServers) -> None:
        self._store = store
        self.entries: dict[str, RedisCatalogEntry] = {}
        self._wiped: set[str] = set()

    def wiped(self) -> None:
        """Note that the server lost all declarations. Each is sent again when it is declared again."""
        self._wiped = set(self.entries)

    def has(self, name: str) -> bool:
        return name in self.entries and name not in self._wiped

    async def load(self) -> None:
        """Load the declarations. Raise SchemaTooNew if a newer program has changed the format."""
        format_ = await self._store.read_registry(b"GET", b"format")
        if format_ is not None and int(format_) > FORMAT:
            raise SchemaTooNew(
                f"the data has format {int(format_)}, this program supports {FORMAT}; upgrade it. Nothing was changed."
            )
        if format_ is not None and int(format_) < FORMAT:
            await self._relist()
        if format_ is None or int(format_) < FORMAT:
            await self._store.write_registry("found", b"%d" % FORMAT)
        rows: Sequence[bytes] = await self._store.read_registry(b"HGETALL", b"catalog")
        for name, stored in zip(rows[::2], rows[1::2], strict=True):
            self._keep(name.decode(), stored)

    async def _relist(self) -> None:
        """Migrate the logs of a store from format 1 to 2. Can be interrupted, and run by several processes at once."""
        gathered: dict[str, list[bytes]] = {}
        async for key in self._store.keys(self._store.layout.pattern):
            place = self._store.layout.parse(key)
            if place is not None and place[1].startswith(b"l/"):
                names = gathered.setdefault(place[0], [])
                names.append(place[1].removeprefix(b"l/"))
                if len(names) >= RELIST_LOGS:
                    await self._store.write("relist", place[0], *gathered.pop(place[0]))
        for partition, names in gathered.items():
            await self._store.write("relist", partition, *names)

    async def reload(self, name: str) -> None:
        stored = await self._store.read_registry(b"HGET", b"catalog", name.encode())
        if stored is not None:
            self._keep(name, stored)

    def _keep(self, name: str, stored: bytes) -> None:
        version, _, declared = stored.partition(b"|")
        shape = CheckedCollection.load(name, declared.decode())
        self.entries[name] = RedisCatalogEntry(int(version), shape, _text(int(version), shape))

    async def declare(self, shape: CheckedCollection) -> None:
        """Store a declaration. A changed one is adopted by every partition before this returns."""
        known = self.entries.get(shape.name)
        if known is not None and known.shape.dump() == shape.dump() and self.has(shape.name):
            return
        version, before = await self._store.write_registry("declare", shape.name.encode(), shape.dump().encode())
        entry = self.entries[shape.name] = RedisCatalogEntry(version, shape, _text(version, shape))
        self._wiped.discard(shape.name)
        if before:
            await self._take_over(shape.name, entry, None)

    async def take_over(self, name: str, partition: str) -> None:
        """Make one partition adopt the current declaration."""
        await self.reload(name)
        await self._take_over(name, self.entries[name], partition)

    async def _take_over(self, name: str, entry: RedisCatalogEntry, partition: str | None) -> None:
        store = self._store
        names = [partition] if partition is not None else [found async for found in store.every_partition()]
        reshaped = [found for found in names if await store.write("reshape", found, name.encode(), entry.text)]
        known = set(reshaped)
        gathered: dict[str, list[bytes]] = {}
        async for key in store.keys(store.layout.records(name, partition)):
            place = store.layout.parse(key)
            if place is not None and place[0] in known:
                keys = gathered.setdefault(place[0], [])
                keys.append(place[1].removeprefix(f"r/{name}/".encode()))
                if len(keys) >= REINDEX_KEYS:
                    await store.write("reindex", place[0], name.encode(), *gathered.pop(place[0]))
        for place_name, keys in gathered.items():
            await store.write("reindex", place_name, name.encode(), *keys)
        for found in reshaped:
            await store.write("reshaped", found, name.encode(), b"%d" % entry.version)

    def index(self, shape: CheckedCollection, number: int) -> tuple[RedisCatalogEntry, int]:
        """Return the current declaration, and in it the number (from 1) of an index that this process declared."""
        entry = self.entries[shape.name]
        wanted = shape.indexes[number]
        return entry, _place(
            [(index.equal, index.order) for index in entry.shape.indexes],
            (wanted.equal, wanted.order),
            lambda: f"collection {shape.name!r} without the index {wanted.name!r}",
        )

    def counter(self, shape: CheckedCollection, number: int) -> tuple[RedisCatalogEntry, int]:
        entry = self.entries[shape.name]
        names = shape.counters[number]
        return entry, _place(entry.shape.counters, names, lambda: f"{shape.name!r} without the counter {names!r}")


def _place(known: Sequence[Any], wanted: Any, what: Callable[[], str]) -> int:
    for number, found in enumerate(known, 1):
        if found == wanted:
            return number
    raise SchemaMismatch(f"another process declared {what()}; restart this one with the same program")


def _text(version: int, shape: CheckedCollection) -> bytes:
    """Encode a declaration for the Lua files."""
    indexes = "".join(f"{','.join(index.equal)}{f'>{index.order}' if index.order else ''};" for index in shape.indexes)
    counters = "".join(f"{','.join(names)};" for names in shape.counters)
    return f"{version}|{indexes}|{counters}".encode()


# -------------------------------------------------------------------------------------------------------------- journal


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
