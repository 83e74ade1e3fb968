"""What is declared in a database. It holds for all processes: one that declared otherwise follows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from keelbolt.errors import SchemaMismatch
from keelbolt.storage.declared import Shape
from keelbolt.storage.records import Fields

Name = TypeVar("Name", int, str)  # what an engine's index entries point at: the id or the name of a record

SLOTS = 8  # numbers kept for the indexes, and for the counters, of each collection
REBUILD_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Catalog:
    """The declared collections, and the number of the first index and counter of each."""

    version: int = -1
    shapes: dict[str, tuple[Shape, int]] = field(default_factory=dict)

    def index(self, shape: Shape, number: int) -> int:
        """The number in the database of an index that this process declared."""
        wanted = shape.indexes[number]
        stored, base = self.shapes[shape.name]
        for place, index in enumerate(stored.indexes):
            if (index.equal, index.order) == (wanted.equal, wanted.order):
                return base + place
        raise SchemaMismatch(
            f"another process declared collection {shape.name!r} without the index {wanted.name!r}; restart this one "
            "with the same program"
        )

    def counter(self, shape: Shape, number: int) -> int:
        stored, base = self.shapes[shape.name]
        names = shape.counters[number]
        if names not in stored.counters:
            raise SchemaMismatch(
                f"another process declared collection {shape.name!r} without the counter {names!r}; restart this one "
                "with the same program"
            )
        return base + stored.counters.index(names)


Encoded = tuple[Shape, list[bytes], list[bytes]]
"""The entries and groups of one record, in the order of the indexes and counters of this shape."""


@dataclass(slots=True)
class IndexChanges(Generic[Name]):
    """The index entries and counters that change with some records.

    ``entries`` and ``groups`` encode them for the engine, in the order of the shape's indexes and counters.
    """

    entries: Callable[[Shape, str, str, Fields], list[bytes]] = Shape.entries
    groups: Callable[[Shape, str, Fields], list[bytes]] = Shape.groups
    removed: list[tuple[int, bytes]] = field(default_factory=list)
    added: list[tuple[int, bytes, Name]] = field(default_factory=list)
    totals: Counter[tuple[int, bytes]] = field(default_factory=Counter)

    def remove(
        self, place: tuple[Shape, int], partition: str, key: str, fields: Fields, known: Encoded | None = None
    ) -> None:
        """The record is gone, or has other fields now. ``place`` is its collection's in the catalog.

        ``known`` is what `add` returned for these fields; it holds as long as the collection is not declared anew.
        """
        shape, base = place
        if known is None or known[0] is not shape:
            known = shape, self.entries(shape, partition, key, fields), self.groups(shape, partition, fields)
        _, entries, groups = known
        self.removed += enumerate(entries, base)
        for counter in enumerate(groups, base):
            self.totals[counter] -= 1

    def add(self, place: tuple[Shape, int], name: Name, partition: str, key: str, fields: Fields) -> Encoded:
        """The record is new, or has these fields now. Returns its entries and groups."""
        shape, base = place
        entries, groups = self.entries(shape, partition, key, fields), self.groups(shape, partition, fields)
        self.added += [(number, entry, name) for number, entry in enumerate(entries, base)]
        for counter in enumerate(groups, base):
            self.totals[counter] += 1
        return shape, entries, groups

    def counted(self) -> list[tuple[int, bytes, int]]:
        """The counters that change, each with its group and by how much, in their order."""
        return sorted((number, group, total) for (number, group), total in self.totals.items() if total)
