"""Index entries and counter groups, shortened to fit into a PostgreSQL index, which takes some 2,700 bytes.

An entry begins with values that are only compared for equality. If these are long, a hash replaces them. The order of
entries with the same beginning stays the same, and queries need no other order.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from keelbolt.kernel.catalog import SLOTS
from keelbolt.kernel.declared import CheckedCollection
from keelbolt.kernel.records import MAX_INDEXES, Fields

Place = tuple[
    CheckedCollection, int
]  # a collection in the catalog: its shape and the number of its first index and counter

NO_ENTRIES = (None,) * MAX_INDEXES

BEGINNING_BYTES = 1000  # the order field and the key that follow have at most some 450 bytes each

_HASHED = b"\x21"
_SIZES = {0x01: 1, 0x02: 1, 0x03: 1, 0x10: 9, 0x11: 9}
_DIGEST_BYTES = 32


def prefix_of(base: int) -> bytes:
    """Return the prefix of a collection's entries; each column holds entries of all collections."""
    return (base // SLOTS).to_bytes(2)


def entries_of(place: Place, partition: str, key: str, fields: Fields) -> Sequence[bytes | None]:
    """Return the index entries of a record, one per column."""
    shape, base = place
    if not shape.indexes:
        return NO_ENTRIES
    entries = shape.entries(partition, key, fields)
    if max(map(len, entries)) > BEGINNING_BYTES:
        entries = [fit(entry, 1 + len(index.equal)) for entry, index in zip(entries, shape.indexes, strict=True)]
    prefix = prefix_of(base)
    return (*[prefix + entry for entry in entries], *NO_ENTRIES[len(entries) :])


def groups_of(shape: CheckedCollection, partition: str, fields: Fields) -> list[bytes]:
    """Return the group of a record in each counter."""
    groups = shape.groups(partition, fields)
    if max(map(len, groups), default=0) <= BEGINNING_BYTES:
        return groups
    return [fit(group, 1 + len(names)) for group, names in zip(groups, shape.counters, strict=True)]


class Totals:
    """Sums of counter changes."""

    def __init__(self) -> None:
        self._totals: Counter[tuple[int, bytes]] = Counter()

    def add(self, place: Place, partition: str, fields: Fields, by: int) -> None:
        """Add a record to its counters, or remove it with -1."""
        shape, base = place
        if shape.counters:
            for number, group in enumerate(groups_of(shape, partition, fields), base):
                self._totals[number, group] += by

    def columns(self) -> Sequence[Sequence[Any]]:
        """Return counters, groups and sums as columns, sorted so that two processes never deadlock; empty if none."""
        rows = sorted((number, group, total) for (number, group), total in self._totals.items() if total)
        return tuple(zip(*rows, strict=True))


def fit(encoded: bytes, count: int) -> bytes:
    """Return the bytes; if they are too long, with a hash in place of the first ``count`` values."""
    if len(encoded) <= BEGINNING_BYTES:
        return encoded
    end = 0
    for _ in range(count):
        end += _SIZES.get(encoded[end]) or _text_bytes(encoded, end)
    if end <= BEGINNING_BYTES:
        return encoded
    return _HASHED + hashlib.sha256(encoded[:end]).digest() + encoded[end:]


def _text_bytes(encoded: bytes, start: int) -> int:
    """Return the length of the encoded string at ``start``: up to its NUL, past escaped NULs, with its hash if any."""
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
