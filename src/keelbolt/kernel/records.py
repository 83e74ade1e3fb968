"""Records: (collection, key) → version, body, a few declared fields, optional expiry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from msgspec import Struct

Scalar = str | int | float | bool | None
Fields = Mapping[str, Scalar]

NO_FIELDS: Fields = MappingProxyType({})


MAX_INDEXES = 4
MAX_FIELD_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Index:
    """One way to find records: all fields of ``equal`` are given; ``order`` is the sort field (None: sorted by key).

    A query uses an index when its filters are exactly ``equal`` and its order is ``order``; it may restrict the order
    field to a range. Strings are ordered by their first 200 bytes.
    """

    name: str
    equal: tuple[str, ...] = ()
    order: str | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A declaration that a face makes before it uses its records.

    ``counters`` lists groups of fields whose totals are updated exactly, in the commit: ``((), ("state",))`` counts all
    records and the records of each state. An ``expiring`` collection can't have counters: an expired record is absent
    at once, but is subtracted only when it is swept.
    """

    name: str
    fields: Mapping[str, type[str | int | float | bool]] = field(default_factory=dict)
    indexes: tuple[Index, ...] = ()
    counters: tuple[tuple[str, ...], ...] = ()
    expiring: bool = False


class Record(Struct, frozen=True, gc=False):
    """A record as it was when it was read. A field that is None equals a field that is not given."""

    collection: str
    key: str
    version: int
    body: bytes
    fields: Fields = NO_FIELDS


class Query(Struct, frozen=True, gc=False):
    """A filter and an order. ``since`` is included, ``until`` is excluded; both are values of the order field."""

    collection: str
    equal: Fields = NO_FIELDS
    order: str | None = None
    since: Scalar = None
    until: Scalar = None
    newest_first: bool = False


class Page(Struct, frozen=True, gc=False):
    """Some records of a query, and the cursor of the next page (None: this was the last).

    ``started_at`` is when the first page was read (microseconds since 1970): a caller that lists by time may skip
    records that moved after it.
    """

    records: tuple[Record, ...]
    cursor: str | None
    started_at: int


class Count(Struct, frozen=True, gc=False):
    """A number of records. If not ``exact``, there are at least this many: counting stopped at the cap."""

    value: int
    exact: bool


# ---------------------------------------------------------------------------------------------------------- checks


class Version(Struct, frozen=True, gc=False):
    """Check: the record is at exactly this version."""

    collection: str
    key: str
    version: int


class Absent(Struct, frozen=True, gc=False):
    """Check: there is no such record (an expired record counts as absent)."""

    collection: str
    key: str


class Present(Struct, frozen=True, gc=False):
    """Check: there is such a record."""

    collection: str
    key: str


class FieldIn(Struct, frozen=True, gc=False):
    """Check: the record exists and this field is one of these values."""

    collection: str
    key: str
    field: str
    values: tuple[Scalar, ...]


class FieldNotIn(Struct, frozen=True, gc=False):
    """Check: the record exists and this field is none of these values."""

    collection: str
    key: str
    field: str
    values: tuple[Scalar, ...]


# ---------------------------------------------------------------------------------------------------------- writes


class Insert(Struct, frozen=True, gc=False):
    """Write a new record at version 1; refused if the record exists."""

    collection: str
    key: str
    body: bytes
    fields: Fields = NO_FIELDS
    expires_in: float | None = None  # seconds


class Restore(Struct, frozen=True, gc=False):
    """Write a new record at this version, for imports; refused if the record exists."""

    collection: str
    key: str
    version: int
    body: bytes
    fields: Fields = NO_FIELDS
    expires_in: float | None = None  # seconds


class Put(Struct, frozen=True, gc=False):
    """Write or overwrite the record: version 1, or one more than before. Fields and expiry are replaced too."""

    collection: str
    key: str
    body: bytes
    fields: Fields = NO_FIELDS
    expires_in: float | None = None  # seconds


class Replace(Struct, frozen=True, gc=False):
    """Put, but only if the record is at exactly this version."""

    collection: str
    key: str
    version: int
    body: bytes
    fields: Fields = NO_FIELDS
    expires_in: float | None = None  # seconds


class Patch(Struct, frozen=True, gc=False):
    """Change some fields and keep the other fields, the body and the expiry; refused if there is no record."""

    collection: str
    key: str
    fields: Fields
    version: int | None = None


class Delete(Struct, frozen=True, gc=False):
    """Remove the record; without ``version``, a missing record is no error."""

    collection: str
    key: str
    version: int | None = None


class Expire(Struct, frozen=True, gc=False):
    """Remove the record if it has expired. For the sweeps of engines; callers can't use it."""

    collection: str
    key: str


class Take(Struct, frozen=True, gc=False):
    """Read the record and remove it. Of several takers one gets it; the others are refused."""

    collection: str
    key: str
