"""What is declared in a database. It holds for all processes: one that declared otherwise follows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from keelbolt.errors import SchemaMismatch
from keelbolt.storage.declared import Shape

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
