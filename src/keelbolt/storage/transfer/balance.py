"""Compares two stores place by place, while one of them is in use.

Of an engine without moments nothing can be compared as a whole: somebody writes while it is read. So each record,
stream, work item and blob has an account of its own: what one side has there is put in, what the other side has is
taken out again. An account that is not empty at the end belongs to a place that was touched meanwhile, or the copy is
wrong.

The accounts are kept in a temporary SQLite database, which goes to disk when there are many.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from keelbolt.storage.transfer.digests import hash_of
from keelbolt.storage.transfer.ports import Place
from keelbolt.storage.transfer.rows import (
    BlobRow,
    ChunkRow,
    CollectionRow,
    EntryRow,
    HoldingRow,
    ItemRow,
    Kind,
    PartitionRow,
    RecordRow,
    Row,
    StreamRow,
    Table,
    Touched,
)

BALANCED: tuple[Table, ...] = ("record", "stream", "entry", "work", "blob", "chunk", "holding")
CACHE_KIB = 65536
_SIGN = 1 << 63
_MASK = (1 << 64) - 1

# SQLite has no exclusive or; what is in both is in one of them at least, so nothing is borrowed here.
_ADD = """
INSERT INTO account VALUES (?, ?, ?, ?, ?) ON CONFLICT (place) DO UPDATE SET
    rows = rows + excluded.rows,
    low = (low | excluded.low) - (low & excluded.low),
    high = (high | excluded.high) - (high & excluded.high)
"""


class Balance:
    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._file.execute(
            "CREATE TABLE account (place BLOB PRIMARY KEY, family TEXT, rows INTEGER, low INTEGER, high INTEGER) "
            "WITHOUT ROWID"
        )

    def close(self) -> None:
        self._file.close()

    def add(self, rows: Iterable[Row]) -> None:
        self._add(rows, 1)

    def take(self, rows: Iterable[Row]) -> None:
        self._add(rows, -1)

    def _add(self, rows: Iterable[Row], sign: int) -> None:
        accounts: dict[tuple[Kind, Place], list[int]] = {}
        families: dict[tuple[Kind, Place], str] = {}
        for row in rows:
            place = place_of(row)
            family, value = hash_of(row)
            account = accounts.setdefault(place, [0, 0])
            account[0] += sign
            account[1] ^= value
            families[place] = family
        values = [
            (_name(*place), families[place], count, _signed(total), _signed(total >> 64))
            for place, (count, total) in accounts.items()
        ]
        self._file.executemany(_ADD, values)

    def unequal(self, touched: Sequence[Touched]) -> list[str]:
        """The families with a place that differs, though nobody has touched it."""
        names = [(_name(each.kind, (each.partition, each.family, each.name)),) for each in touched]
        self._file.executemany("DELETE FROM account WHERE place = ?", names)
        rows = self._file.execute("SELECT DISTINCT family FROM account WHERE rows <> 0 OR low <> 0 OR high <> 0")
        return sorted(row[0] for row in rows)


def place_of(row: Row) -> tuple[Kind, Place]:
    """To which place it belongs, and is touched with."""
    match row:
        case RecordRow():
            return "record", row[:3]
        case StreamRow() | EntryRow():
            return "stream", row[:3]
        case ItemRow():
            return "work", row[:3]
        case BlobRow() | ChunkRow() | HoldingRow():
            return "blob", (row.partition, "", row.digest)
        case CollectionRow() | PartitionRow():
            raise AssertionError(row)


def _name(kind: Kind, place: Place) -> bytes:
    return blake2b("\0".join((kind, *place)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _signed(value: int) -> int:
    low = value & _MASK
    return low - (1 << 64) if low & _SIGN else low
