"""Records: (collection, key) → version, body, a few declared fields, optional expiry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Scalar = str | int | float | bool | None
Fields = Mapping[str, Scalar]

NO_FIELDS: Fields = MappingProxyType({})


def _no_fields() -> Fields:
    return NO_FIELDS


MAX_INDEXES = 4
MAX_FIELD_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Index:
    """One way to find records: every field of ``equal`` given, in the order of ``order`` (None: in the order of keys).

    A query uses an index when its filters are exactly ``equal`` and its order is ``order``; a range may be laid on the
    order. Strings are ordered by their first 200 bytes.
    """

    name: str
    equal: tuple[str, ...] = ()
    order: str | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """What a face declares about its records before it uses them.

    ``counters`` lists groups of fields whose totals are kept exactly, in the commit: ``((), ("state",))`` counts all
    records and the records of each state. An ``expiring`` collection can't have counters: an expired record is gone at
    once, but is subtracted only when it is swept.
    """

    name: str
    fields: Mapping[str, type[str | int | float | bool]] = field(default_factory=dict)
    indexes: tuple[Index, ...] = ()
    counters: tuple[tuple[str, ...], ...] = ()
    expiring: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was when it was read. A field that is None is the same as one that was not given."""

    collection: str
    key: str
    version: int
    body: bytes
    fields: Fields = field(default_factory=_no_fields)


@dataclass(frozen=True, slots=True)
class Query:
    """Which records, in which order. ``since`` is included, ``until`` is not; both are values of the order's field."""

    collection: str
    equal: Fields = field(default_factory=_no_fields)
    order: str | None = None
    since: Scalar = None
    until: Scalar = None
    newest_first: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Some records of a query, and the cursor of the next page (None: this was the last).

    ``started_at`` is when the first page was read (microseconds since 1970): a caller that lists by time may skip what
    moved after it.
    """

    records: tuple[Record, ...]
    cursor: str | None
    started_at: int


@dataclass(frozen=True, slots=True)
class Count:
    """How many. Not ``exact`` means: at least this many, counting stopped at the cap."""

    value: int
    exact: bool


# ---------------------------------------------------------------------------------------------------------- checks


@dataclass(frozen=True, slots=True)
class Version:
    """Check: the record is at exactly this version."""

    collection: str
    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Absent:
    """Check: there is no such record (an expired one is none)."""

    collection: str
    key: str


@dataclass(frozen=True, slots=True)
class Present:
    """Check: there is such a record."""

    collection: str
    key: str


@dataclass(frozen=True, slots=True)
class FieldIn:
    """Check: the record exists and this field is one of these values."""

    collection: str
    key: str
    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class FieldNotIn:
    """Check: the record exists and this field is none of these values."""

    collection: str
    key: str
    field: str
    values: tuple[Scalar, ...]


# ---------------------------------------------------------------------------------------------------------- writes


@dataclass(frozen=True, slots=True)
class Insert:
    """Write a new record at version 1; refused when there is one already."""

    collection: str
    key: str
    body: bytes
    fields: Fields = field(default_factory=_no_fields)
    expires_in: float | None = None  # seconds


@dataclass(frozen=True, slots=True)
class Put:
    """Write the record, whatever was there: version 1, or one more than before. Fields and expiry are replaced too."""

    collection: str
    key: str
    body: bytes
    fields: Fields = field(default_factory=_no_fields)
    expires_in: float | None = None  # seconds


@dataclass(frozen=True, slots=True)
class Replace:
    """Put, but only over exactly this version."""

    collection: str
    key: str
    version: int
    body: bytes
    fields: Fields = field(default_factory=_no_fields)
    expires_in: float | None = None  # seconds


@dataclass(frozen=True, slots=True)
class Patch:
    """Change some fields and leave the others, the body and the expiry alone; refused when there is no record."""

    collection: str
    key: str
    fields: Fields
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the record; without ``version`` it is no error when there is none."""

    collection: str
    key: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Expire:
    """Remove the record if its time is over. Engines sweep with it; callers can't."""

    collection: str
    key: str


@dataclass(frozen=True, slots=True)
class Take:
    """Read the record and remove it: of all takers one gets it, the others are refused."""

    collection: str
    key: str
