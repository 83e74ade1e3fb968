"""The names of all keys of a store, sorted.

SCAN returns keys in no order, and some of them twice during a rehash. So the names are collected once in a temporary
SQLite database, which sorts them and removes duplicates. It spills to disk when there are many, so the memory of a copy
is bounded for any store size.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from typing import Literal

from keelbolt.kernel.redis.servers import RedisServers

Kind = Literal["record", "stream", "work", "blob"]
Name = tuple[str, str, str]  # partition, family, name

GATHERED = 2000
LISTED = 2000
CACHE_KIB = 65536

_KINDS: dict[bytes, Kind] = {b"r": "record", b"s": "stream", b"w": "work", b"b": "blob"}


class Names:
    """Contains all names that existed throughout the collection, and some that existed for a part of it."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._file.execute(
            "CREATE TABLE name (kind TEXT, partition TEXT, family TEXT, name TEXT, "
            "PRIMARY KEY (kind, partition, family, name)) WITHOUT ROWID"
        )

    def close(self) -> None:
        self._file.close()

    async def gather(self, store: RedisServers) -> None:
        page: list[tuple[str, str, str, str]] = []
        async for key in store.keys(store.layout.pattern):
            place = store.layout.parse(key)
            kind = _KINDS.get(place[1].partition(b"/")[0]) if place is not None else None
            if place is None or kind is None:
                continue
            rest = place[1].partition(b"/")[2].decode()
            family, _, name = ("", "", rest) if kind == "blob" else rest.partition("/")
            page.append((kind, place[0], family, name))
            if len(page) >= GATHERED:
                self._add(page)
                page = []
        self._add(page)

    def _add(self, page: list[tuple[str, str, str, str]]) -> None:
        self._file.executemany("INSERT OR IGNORE INTO name VALUES (?, ?, ?, ?)", page)

    def count(self, kind: Kind) -> int:
        return int(self._file.execute("SELECT count(*) FROM name WHERE kind = ?", (kind,)).fetchone()[0])

    def partitions(self) -> Iterator[str]:
        for row in self._file.execute("SELECT DISTINCT partition FROM name"):
            yield row[0]

    async def pages(self, kind: Kind, after: Name = ("", "", "")) -> AsyncIterator[list[Name]]:
        """Return all names after this one, in pages."""
        while True:
            page: list[Name] = self._file.execute(
                "SELECT partition, family, name FROM name WHERE kind = ? AND (partition, family, name) > (?, ?, ?) "
                "ORDER BY partition, family, name LIMIT ?",
                (kind, *after, LISTED),
            ).fetchall()
            if not page:
                return
            yield page
            after = page[-1]
