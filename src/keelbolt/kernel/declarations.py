"""Declarations: collections with their fields, indexes and counters, and the catalog of those stored in a database."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii as _quote
from typing import Any, Generic, TypeVar

from keelbolt.errors import InvalidName, InvalidValue, NoIndex, NotDeclared, SchemaMismatch, TooLarge
from keelbolt.kernel.keys import END, encode, encode_one, encode_text
from keelbolt.kernel.records import MAX_FIELD_CHARS, MAX_INDEXES, NO_FIELDS, Collection, Fields, Index, Query, Scalar

_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_TYPES: dict[str, type[Any]] = {"str": str, "int": int, "float": float, "bool": bool}
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_INT_LIMIT = 1 << 63


def check_name(name: str, what: str) -> None:
    """Raise InvalidName unless a family, index or field has a short name that is safe in every engine."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidName(f"{what} {name!r}: use 1 to 64 of a-z, 0-9, '_', '.' and '-', beginning with a letter")


class CheckedCollection:
    """A checked Collection, and the functions derived from it: index entries and counter groups of a record."""

    def __init__(self, collection: Collection) -> None:
        if not isinstance(collection, Collection):
            raise InvalidValue(f"declare a Collection, not {type(collection).__name__}")
        self.collection = collection
        self.name = collection.name
        self.types = dict(_mapping(collection))
        self.indexes = tuple(_index(index) for index in collection.indexes)
        self.counters = tuple(_names(names, "a counter") for names in collection.counters)
        # The fields between the partition and the key in an entry, for each index.
        self._parts = tuple((*index.equal, index.order) if index.order else index.equal for index in self.indexes)
        self._check()
        self._indexed = tuple({name for names in self._parts for name in names})

    def _check(self) -> None:
        declared = self.collection
        check_name(declared.name, "collection")
        for name, kind in self.types.items():
            check_name(name, "field")
            if kind not in _TYPES.values():
                raise InvalidValue(f"field {name!r} of {declared.name!r}: the type must be str, int, float or bool")
        if len(self.indexes) > MAX_INDEXES:
            raise InvalidValue(
                f"collection {declared.name!r} has more than {MAX_INDEXES} indexes; each one slows writes. Remove some"
            )
        if len({index.name for index in self.indexes}) < len(self.indexes):
            raise InvalidValue(f"collection {declared.name!r} has two indexes of the same name; rename one")
        for index in self.indexes:
            self._check_fields((*index.equal, *((index.order,) if index.order else ())))
        for group in self.counters:
            self._check_fields(group)
        if declared.expiring and self.counters:
            raise InvalidValue(f"collection {declared.name!r} is expiring, so it can't have exact counters")

    def _check_fields(self, names: Iterable[str]) -> None:
        for name in names:
            check_name(name, "field")
            if name not in self.types:
                raise NotDeclared(f"collection {self.name!r} has no field {name!r}; declare it with its type")

    def fields(self, given: Fields) -> Fields:
        """Return a checked copy of a record's fields, without those that are None."""
        if not given:
            return NO_FIELDS
        copy = dict(given)
        types = self.types
        for name, value in given.items():
            # Fast path: most fields are short ASCII strings.
            if type(value) is not str or types.get(name) is not str or not value.isascii() or len(value) > 200:
                self.check_value(name, value)
                if value is None:
                    del copy[name]
        return copy

    def checked(self, given: Fields) -> dict[str, Scalar]:
        """Return a checked copy of the fields of a patch, in which None removes a field."""
        for name, value in given.items():
            self.check_value(name, value)
        return dict(given)

    def check_value(self, name: str, value: Scalar) -> None:
        kind = self.types.get(name)
        if kind is None:
            raise NotDeclared(f"collection {self.name!r} has no field {name!r}; declare it with its type")
        if value is None:
            return
        if type(value) is not kind:
            raise InvalidValue(f"field {name!r} of {self.name!r} must be {kind.__name__}, not {type(value).__name__}")
        if kind is str and len(value) > MAX_FIELD_CHARS:  # type: ignore[arg-type]
            raise TooLarge(
                f"field {name!r} of {self.name!r} has at most {MAX_FIELD_CHARS} characters; put it into the body"
            )
        if kind is str and not value.isascii() and _PAIR.search(value):  # type: ignore[union-attr, arg-type]
            # JSON decodes two adjacent surrogates as the one character that they encode.
            raise InvalidValue(f"field {name!r} of {self.name!r} must be valid text; it holds a pair of surrogates")
        if kind is int and not -_INT_LIMIT <= value < _INT_LIMIT:  # type: ignore[operator]
            raise InvalidValue(f"field {name!r} of {self.name!r} must fit into 64 bits")
        if kind is float and not math.isfinite(value):  # type: ignore[arg-type]
            raise InvalidValue(f"field {name!r} of {self.name!r} must be a finite number")

    def entries(self, partition: str, key: str, fields: Fields) -> list[bytes]:
        """Return the entry of this record in each index, in the order of the indexes."""
        if not self._parts:
            return []
        first, last = encode_text(partition), encode_text(key)
        encoded = {name: encode_one(fields.get(name)) for name in self._indexed}  # encoded once for all indexes
        return [first + b"".join([encoded[name] for name in names]) + last for names in self._parts]

    def groups(self, partition: str, fields: Fields) -> list[bytes]:
        """Return the group of this record in each counter, in the order of the counters."""
        if not self.counters:
            return []
        first = encode_text(partition)
        return [first + b"".join([encode_one(fields.get(name)) for name in names]) for names in self.counters]

    def index_for(self, query: Query) -> int:
        """Return the number of the index that covers this query. Raise NoIndex if there is none."""
        wanted = set(query.equal)
        for number, index in enumerate(self.indexes):
            if set(index.equal) == wanted and index.order == query.order:
                return number
        filters = ", ".join(sorted(wanted)) or "no filter"
        raise NoIndex(
            f"no index of {self.name!r} has exactly the filters ({filters}) in the order of "
            f"{query.order or 'the keys'}; declare Index(name, equal=({', '.join(map(repr, sorted(wanted)))}), "
            f"order={query.order!r})"
        )

    def bounds(self, index: int, partition: str, query: Query) -> tuple[bytes, bytes]:
        """Return the range of this index that the query covers: low ≤ entry < high."""
        prefix = encode((partition, *(query.equal.get(name) for name in self.indexes[index].equal)))
        low = prefix if query.since is None else prefix + encode((query.since,))
        high = prefix + END if query.until is None else prefix + encode((query.until,))
        return low, high

    def counter_for(self, query: Query) -> int | None:
        """Return the number of the counter that covers this query, or None."""
        if query.since is not None or query.until is not None:
            return None
        for number, names in enumerate(self.counters):
            if set(names) == set(query.equal):
                return number
        return None

    def dump(self) -> str:
        """Return the part of the declaration that is stored with the data, as canonical JSON."""
        return json.dumps(
            {
                "fields": {name: kind.__name__ for name, kind in sorted(self.types.items())},
                "indexes": [[index.name, list(index.equal), index.order] for index in self.indexes],
                "counters": [list(names) for names in self.counters],
                "expiring": self.collection.expiring,
            }
        )

    @classmethod
    def load(cls, name: str, text: str) -> CheckedCollection:
        stored = json.loads(text)
        return cls(
            Collection(
                name,
                fields={field: _TYPES[kind] for field, kind in stored["fields"].items()},
                indexes=tuple(Index(name, tuple(equal), order) for name, equal, order in stored["indexes"]),
                counters=tuple(tuple(names) for names in stored["counters"]),
                expiring=stored["expiring"],
            )
        )


def _mapping(collection: Collection) -> Mapping[str, type[Any]]:
    if not isinstance(collection.fields, Mapping):
        raise InvalidValue(f"the fields of {collection.name!r} must be a mapping of names to types")
    return collection.fields


def _index(index: Index) -> Index:
    if not isinstance(index, Index):
        raise InvalidValue(f"an index must be an Index, not {type(index).__name__}")
    check_name(index.name, "index")
    return Index(index.name, _names(index.equal, f"equal of index {index.name!r}"), index.order)


def _names(names: tuple[str, ...], what: str) -> tuple[str, ...]:
    if not isinstance(names, tuple | list):
        raise InvalidValue(f"{what} must be a tuple of field names, such as ('state',), not {names!r}")
    return tuple(names)


class Declarations:
    """All declarations of one kernel."""

    def __init__(self) -> None:
        self.shapes: dict[str, CheckedCollection] = {}

    def shape(self, collection: str) -> CheckedCollection:
        try:
            return self.shapes[collection]
        except (KeyError, TypeError):
            raise NotDeclared(
                f"collection {collection!r} is not declared; open_storage(url, declare=[Collection({collection!r}, …)])"
            ) from None


def dump_fields(fields: Mapping[str, Scalar]) -> str:
    """Return the fields as JSON. Built by hand: json.dumps makes an encoder per call and costs as much as the SQL."""
    if not fields:
        return ""
    return f"{{{','.join([f'{_quote(name)}:{_dump(value)}' for name, value in fields.items()])}}}"


def _dump(value: Scalar) -> str:
    if type(value) is str:
        return _quote(value)
    if value is True:
        return "true"
    if value is False:
        return "false"
    return repr(value)


def load_fields(text: str) -> Fields:
    return json.loads(text) if text else NO_FIELDS


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
