"""The collections declared in a database. All processes use the stored declaration, even if they declared another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from keelbolt.errors import SchemaMismatch
from keelbolt.kernel.declared import CheckedCollection
from keelbolt.kernel.records import Fields

Name = TypeVar("Name", int, str)  # type of the record reference in an engine's index entries: its id or name

SLOTS = 8  # numbers reserved for the indexes, and for the counters, of each collection
REBUILD_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Catalog:
    """The declared collections, each with the number of its first index and counter."""

    version: int = -1
    shapes: dict[str, tuple[CheckedCollection, int]] = field(default_factory=dict)

    def index(self, shape: CheckedCollection, number: int) -> int:
        """Return the number in the database of an index that this process declared."""
        wanted = shape.indexes[number]
        stored, base = self.shapes[shape.name]
        for place, index in enumerate(stored.indexes):
            if (index.equal, index.order) == (wanted.equal, wanted.order):
                return base + place
        raise SchemaMismatch(
            f"another process declared collection {shape.name!r} without the index {wanted.name!r}; restart this one "
            "with the same program"
        )

    def counter(self, shape: CheckedCollection, number: int) -> int:
        stored, base = self.shapes[shape.name]
        names = shape.counters[number]
        if names not in stored.counters:
            raise SchemaMismatch(
                f"another process declared collection {shape.name!r} without the counter {names!r}; restart this one "
                "with the same program"
            )
        return base + stored.counters.index(names)


Encoded = tuple[CheckedCollection, list[bytes], list[bytes]]
"""The index entries and counter groups of one record, in the order of the shape's indexes and counters."""


@dataclass(slots=True)
class IndexChanges(Generic[Name]):
    """Changes of index entries and counters that result from record writes.

    ``entries`` and ``groups`` encode them for the engine, in the order of the shape's indexes and counters.
    """

    entries: Callable[[CheckedCollection, str, str, Fields], list[bytes]] = CheckedCollection.entries
    groups: Callable[[CheckedCollection, str, Fields], list[bytes]] = CheckedCollection.groups
    removed: list[tuple[int, bytes]] = field(default_factory=list)
    added: list[tuple[int, bytes, Name]] = field(default_factory=list)
    totals: Counter[tuple[int, bytes]] = field(default_factory=Counter)

    def remove(
        self,
        place: tuple[CheckedCollection, int],
        partition: str,
        key: str,
        fields: Fields,
        known: Encoded | None = None,
    ) -> None:
        """Remove the entries of a record that was deleted or whose fields changed.

        ``place`` is the catalog's value for the record's collection. ``known`` is the value that `add` returned for
        these fields; it is ignored after the collection was declared again.
        """
        shape, base = place
        if known is None or known[0] is not shape:
            known = shape, self.entries(shape, partition, key, fields), self.groups(shape, partition, fields)
        _, entries, groups = known
        self.removed += enumerate(entries, base)
        for counter in enumerate(groups, base):
            self.totals[counter] -= 1

    def add(
        self, place: tuple[CheckedCollection, int], name: Name, partition: str, key: str, fields: Fields
    ) -> Encoded:
        """Add the entries of a record that is new or whose fields changed. Return its entries and groups."""
        shape, base = place
        entries, groups = self.entries(shape, partition, key, fields), self.groups(shape, partition, fields)
        self.added += [(number, entry, name) for number, entry in enumerate(entries, base)]
        for counter in enumerate(groups, base):
            self.totals[counter] += 1
        return shape, entries, groups

    def counted(self) -> list[tuple[int, bytes, int]]:
        """Return (counter, group, change) for each changed counter, sorted."""
        return sorted((number, group, total) for (number, group), total in self.totals.items() if total)
