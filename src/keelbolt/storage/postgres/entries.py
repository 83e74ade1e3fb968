"""Index entries and groups that fit into an index of PostgreSQL, which takes some 2,700 bytes.

An entry begins with values that are only compared for being equal. Where these are long, their hash stands for them;
the order among the entries of one such beginning, which is all that a query asks for, stays what it was.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from keelbolt.storage.catalog import SLOTS
from keelbolt.storage.declared import Shape
from keelbolt.storage.records import MAX_INDEXES, Fields

Place = tuple[Shape, int]  # a collection in the catalog: its shape, and the number of its first index and counter

NO_ENTRIES = (None,) * MAX_INDEXES

BEGINNING_BYTES = 1000  # the order's field and the key that follow have at most some 450 each

_HASHED = b"\x21"
_SIZES = {0x01: 1, 0x02: 1, 0x03: 1, 0x10: 9, 0x11: 9}
_DIGEST_BYTES = 32


def prefix_of(base: int) -> bytes:
    """What the entries of a collection begin with; columns hold the entries of all collections."""
    return (base // SLOTS).to_bytes(2)


def entries_of(place: Place, partition: str, key: str, fields: Fields) -> Sequence[bytes | None]:
    """The entries of a record, one for each column."""
    shape, base = place
    if not shape.indexes:
        return NO_ENTRIES
    entries = shape.entries(partition, key, fields)
    if max(map(len, entries)) > BEGINNING_BYTES:
        entries = [fit(entry, 1 + len(index.equal)) for entry, index in zip(entries, shape.indexes, strict=True)]
    prefix = prefix_of(base)
    return (*[prefix + entry for entry in entries], *NO_ENTRIES[len(entries) :])


def groups_of(shape: Shape, partition: str, fields: Fields) -> list[bytes]:
    """The group of a record in each counter."""
    groups = shape.groups(partition, fields)
    if max(map(len, groups), default=0) <= BEGINNING_BYTES:
        return groups
    return [fit(group, 1 + len(names)) for group, names in zip(groups, shape.counters, strict=True)]


class Totals:
    """By how much counters change."""

    def __init__(self) -> None:
        self._totals: Counter[tuple[int, bytes]] = Counter()

    def add(self, place: Place, partition: str, fields: Fields, by: int) -> None:
        """Count a record in, or with -1 out."""
        shape, base = place
        if shape.counters:
            for number, group in enumerate(groups_of(shape, partition, fields), base):
                self._totals[number, group] += by

    def columns(self) -> Sequence[Sequence[Any]]:
        """Counters, groups and sums, or nothing; in order, so that two processes never wait for each other."""
        rows = sorted((number, group, total) for (number, group), total in self._totals.items() if total)
        return tuple(zip(*rows, strict=True))


def fit(encoded: bytes, count: int) -> bytes:
    """The same bytes, or those with a hash in place of the first ``count`` values."""
    if len(encoded) <= BEGINNING_BYTES:
        return encoded
    end = 0
    for _ in range(count):
        end += _SIZES.get(encoded[end]) or _text_bytes(encoded, end)
    if end <= BEGINNING_BYTES:
        return encoded
    return _HASHED + hashlib.sha256(encoded[:end]).digest() + encoded[end:]


def _text_bytes(encoded: bytes, start: int) -> int:
    """How long the string is that begins here: to its NUL, past NULs of its own, with its hash if it has one."""
    end = start
    while True:
        end = encoded.index(b"\0", end) + 1
        match encoded[end : end + 1]:
            case b"\xff":
                end += 1
            case b"\xfe":
                return end + 1 + _DIGEST_BYTES - start
            case _:
                return end - start
