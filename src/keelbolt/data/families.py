"""Families declare once which data each face keeps. Erasure, retention and export work from these declarations.

A family is a collection of records together with everything that shares their keys: records of other collections, log
streams, work items, blobs. Its records belong to *subjects*, such as a task, a session or a thread. A record can be a
subject itself: the record of a task is the subject "task", and the files of the task are found by its id.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

from keelbolt.data.retention import FacePolicy
from keelbolt.errors import InvalidName, InvalidValue
from keelbolt.kernel import (
    Collection,
    Delete,
    Detach,
    Drop,
    Entry,
    Index,
    Kernel,
    Operation,
    Put,
    Query,
    Record,
    Remove,
    Scalar,
    Scope,
)
from keelbolt.kernel.contract import MAX_KEY_CHARS
from keelbolt.kernel.requests import check_key, check_partition

GROUP = "keelbolt.faces"  # the entry point group: name = "package.module:FACE"
EVERYTHING = "everything"  # target kind for a whole partition
SWEEPS = "data_sweeps"  # collection of the last sweeps, and prefix of their queue names
SWEEPS_COLLECTION = Collection(SWEEPS, indexes=(Index("key"),))
_UUID_EPOCH = 0x01B21DD213814000  # from 1582 to 1970, in 100 ns
IMPORTS = "data_imports"  # marks of subjects that are only partly imported
IMPORTS_COLLECTION = Collection(IMPORTS, indexes=(Index("key"),))
ERASURES = "data_erasures"  # records of unfinished erasures, and the queue of their work items
TOMBSTONES = "data_tombstones"  # marks of recent erasures; the version counts the erasures
TOMBSTONES_COLLECTION = Collection(TOMBSTONES, indexes=(Index("key"),), expiring=True)
TOMBSTONE_SECONDS = 30 * 86400.0  # a process that was suspended for longer may write to an erased subject


def tombstone_key(collection: str, key: str) -> str:
    """Return the key of a subject's tombstone: a digest, which reveals nothing about the erased data."""
    return hashlib.sha256(f"{collection}/{key}".encode()).hexdigest()


class Lookup(Protocol):
    """Finds the records of a subject in one collection."""

    def __call__(self, scope: Scope, collection: Collection, ref: str, /) -> AsyncIterator[Record]: ...


@dataclass(frozen=True, slots=True)
class ByKey:
    """Finds the record that has the subject's key."""

    async def __call__(self, scope: Scope, collection: Collection, ref: str, /) -> AsyncIterator[Record]:
        found = await scope.get(collection.name, ref)
        if found is not None:
            yield found


@dataclass(frozen=True, slots=True)
class ByField:
    """Finds the records whose indexed field equals the subject's key, or one of the ``values`` derived from it."""

    name: str
    values: Callable[[str], Iterable[str]] | None = None

    async def __call__(self, scope: Scope, collection: Collection, ref: str, /) -> AsyncIterator[Record]:
        for value in (ref,) if self.values is None else self.values(ref):
            async for record in scope.scan(self.query(collection, value)):
                yield record

    def query(self, collection: Collection, value: str) -> Query:
        """Return the query for the records with this value."""
        order = next(index.order for index in collection.indexes if index.equal == (self.name,))
        return Query(collection.name, {self.name: value}, order=order)


@dataclass(frozen=True, slots=True)
class ByScan:
    """Finds the records of ``query`` for which ``match(record, ref)`` is true; reads all of them."""

    query: Query
    match: Callable[[Record, str], bool]

    async def __call__(self, scope: Scope, _collection: Collection, ref: str, /) -> AsyncIterator[Record]:
        async for record in scope.scan(self.query):
            if self.match(record, ref):
                yield record


@dataclass(frozen=True, slots=True)
class ByAny:
    """Finds the records of several lookups, one after the other."""

    lookups: tuple[Lookup, ...]

    async def __call__(self, scope: Scope, collection: Collection, ref: str, /) -> AsyncIterator[Record]:
        for lookup in self.lookups:
            async for record in lookup(scope, collection, ref):
                yield record


class Reference(NamedTuple):
    """A subject inside a partition: its kind, and the key by which families find its records."""

    kind: str
    ref: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One kind of record, with the data that belongs to each record.

    ``title`` is the display name. ``subject`` is the kind of subject that each record represents. If several records
    represent one subject, ``key_of`` returns the key of the first, and ``ref_of`` the subject of each. ``found_by``
    maps the kinds of other subjects to the lookups of their records. ``beside``, ``logs`` and ``queues`` name
    collections, logs and queues that use the same keys. ``blobs`` returns the operations that detach the blobs of a
    record. ``leads_to`` returns further subjects that are erased with a record. ``remove`` replaces the deletion of a
    record where plain operations are not enough. ``tombstone``: an erased subject leaves a tombstone, which the face
    checks with each write.

    ``named`` returns the kind and the public id of a record that is a subject, ``value`` its content and ``entry`` the
    content of a log entry, as JSON data. Defaults: the key, and the body if it is JSON. ``hides`` names the fields and
    members that hold secrets; inspection omits them.

    An export includes a family unless ``travels`` is false. ``dedupe`` returns the dedupe key of a log entry and
    ``expires`` the Unix time at which a record expires; reads from the storage return neither. ``restore`` replaces the
    writing of an imported record, whose blobs are staged, where plain operations are not enough.

    ``everything`` finds all records of a partition (default: an index without filters, if there is one). ``hidden``
    finds records that a lookup by subject finds only by reading many others; they are erased first, and ``apart`` finds
    the others.
    """

    collection: Collection
    title: str
    subject: str | None = None
    key_of: Callable[[str], str] = lambda ref: ref
    ref_of: Callable[[Record], str] = lambda record: record.key
    found_by: Mapping[str, Lookup] = field(default_factory=dict)
    everything: tuple[Query, ...] | None = None
    hidden: tuple[Query, ...] = ()
    age: str | None = None
    beside: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    blobs: Callable[[Record], Iterable[Detach]] | None = None
    leads_to: Callable[[Record], Iterable[Reference]] | None = None
    tombstone: bool = False
    remove: Callable[[Scope, Record], Awaitable[None]] | None = None
    named: Callable[[Record], tuple[str, str] | None] | None = None
    value: Callable[[Scope, Record], Awaitable[Any]] | None = None
    entry: Callable[[str, Entry], Any] | None = None
    hides: tuple[str, ...] = ()
    travels: bool = True
    apart: Mapping[str, Lookup] = field(default_factory=dict)
    dedupe: Callable[[str, Entry], str | None] | None = None
    expires: Callable[[Record], float | None] | None = None
    restore: Callable[[Scope, Record], Awaitable[None]] | None = None

    @property
    def name(self) -> str:
        return self.collection.name

    def queries(self) -> Sequence[Query]:
        """Return the queries for all records of a partition; empty if records are found only by their subjects."""
        if self.everything is not None:
            return self.everything
        for index in self.collection.indexes:
            if not index.equal:
                return (Query(self.name, order=index.order),)
        return ()

    def operations(self, record: Record, *, version: int | None = None, tombstone: bool = True) -> Iterator[Operation]:
        """Yield the operations that delete this record and everything that belongs to it.

        If ``tombstone`` is false, no tombstone is left. A record that holds blobs is deleted only at the version that
        was read: another version may hold other blobs.
        """
        if self.blobs is not None:
            version = record.version
            yield from self.blobs(record)
        yield Delete(self.name, record.key, version)
        if self.tombstone and tombstone:
            yield Put(TOMBSTONES, tombstone_key(self.name, record.key), b"", expires_in=TOMBSTONE_SECONDS)
        for collection in self.beside:
            yield Delete(collection, record.key)
        for log in self.logs:
            yield Drop(log, record.key)
        for queue in self.queues:
            yield Remove(queue, record.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A subject as users name it: ``kind`` is task, context, session, trace, memory, thread, user or tenant.

    ``tenant`` and ``owner`` identify its owner if the face divides its data by them.
    """

    kind: str
    id: str
    tenant: str = ""
    owner: str = ""


class SubjectLocation(NamedTuple):
    """The location of a subject's records: a subject in one scope, or the whole scope if the kind is EVERYTHING."""

    scope: Scope
    kind: str
    ref: str = ""


class Locate(Protocol):
    """Finds the targets of a subject. Yields none for a kind that the face does not have."""

    def __call__(self, kernel: Kernel, subject: Subject, /) -> AsyncIterator[SubjectLocation]: ...


class Retain(Protocol):
    """Removes data that a policy no longer keeps, in all partitions; returns counts by title. ``dry`` only counts."""

    async def __call__(self, kernel: Kernel, policy: Any, /, *, dry: bool) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """All families of one face. ``kinds`` are the kinds of subjects that it supports.

    ``prefix`` is the prefix of its partition names; "" means the partitions of callers, which no face reserves.
    ``more`` names further partitions that it uses. ``expired`` removes data that is no longer needed under any
    retention policy, and returns counts by title. ``policy`` is the class of its retention policies; ``retain`` applies
    such a policy.
    """

    name: str
    kinds: tuple[str, ...]
    families: tuple[Family, ...]
    locate: Locate
    prefix: str = ""
    more: tuple[str, ...] = ()
    expired: Callable[[Kernel], Awaitable[Mapping[str, int]]] | None = None
    policy: type[FacePolicy] | None = None
    retain: Retain | None = None

    def collections(self) -> list[Collection]:
        """Return the collections that must be declared to the kernel before this face is used."""
        own = (family.collection for family in self.families)
        return [*own, Collection(ERASURES), IMPORTS_COLLECTION, TOMBSTONES_COLLECTION]

    def owns(self, scope: Scope) -> bool:
        """Return whether this face keeps its records in this scope."""
        partition = scope.partition
        if partition in self.more:
            return True
        if self.prefix:
            return partition.startswith(self.prefix)
        return not partition.startswith("~") or partition.startswith("~anonymous")

    async def scopes(self, kernel: Kernel, *, tenant: str = "", owner: str = "") -> AsyncIterator[Scope]:
        """Yield the scopes of a tenant or an owner, in order; without either, all scopes of this face."""
        if not tenant and not owner:
            async for scope in kernel.scopes(prefix=self.prefix):
                if self.owns(scope):
                    yield scope
            return
        whole = Subject(kind="user", id=owner, tenant=tenant) if owner else Subject(kind="tenant", id=tenant)
        found = {each.scope async for each in self.locate(kernel, whole) if each.kind == EVERYTHING}
        for scope in sorted(found, key=lambda each: each.partition):
            yield scope

    def root(self, kind: str) -> Family | None:
        """Return the family whose records are subjects of this kind."""
        return next((family for family in self.families if family.subject == kind), None)

    def home(self, family: Family) -> tuple[str, ByField] | None:
        """Return the kind of subject to whose groups a whole export adds this family's records, and the lookup.

        Return None if the records are subjects themselves or have no field that names the subject.
        """
        for kind, found_by in family.found_by.items():
            lookup = family.apart.get(kind, found_by)
            fits = family.subject in (None, kind) and self.root(kind) is not None
            if fits and isinstance(lookup, ByField) and lookup.values is None:
                return kind, lookup
        return None

    def members(self, kind: str, *, whole: bool = False) -> list[tuple[Family, Lookup]]:
        """Return the families that have records of such a subject, with their lookups.

        With ``whole``, the caller reads the whole partition, so only families that no query finds are returned.
        """
        if not whole:
            return [(family, family.found_by[kind]) for family in self.families if kind in family.found_by]
        return [
            (family, family.apart.get(kind, family.found_by[kind]))
            for family in self.families
            if kind in family.found_by and not family.queries()
        ]


def age_in_seconds(value: Scalar) -> float | None:
    """Return the Unix time of an age field: integer microseconds, float seconds, or a UUID that begins with a time."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return value / 1_000_000 if isinstance(value, int) else value
    with contextlib.suppress(ValueError):
        found = uuid.UUID(value)
        ticks = int(f"{found.hex[:12]}{found.hex[13:16]}", 16)  # UUID version 6, as LangGraph creates it
        return (ticks - _UUID_EPOCH) / 10_000_000 if found.version == 6 else None
    return None


def age_of_seconds(kind: type, seconds: float) -> Scalar:
    """Return the lowest value of an age field of this type at a Unix time, as the end of a range."""
    if kind is str:
        ticks = f"{max(int(seconds * 10_000_000) + _UUID_EPOCH, 0):015x}"
        return f"{ticks[:8]}-{ticks[8:12]}-6{ticks[12:]}-"
    return int(seconds * 1_000_000) if kind is int else seconds


def import_key(face: str, kind: str, ref: str) -> str:
    """Return the key of the record that marks a subject as partly imported."""
    return f"{face}/{kind}/{ref}"[:MAX_KEY_CHARS]


@cache
def faces() -> tuple[Face, ...]:
    """Return the faces of this installation: Keelbolt's, and those that other packages register as entry points."""
    found = [entry.load() for entry in entry_points(group=GROUP)]
    for face in found:
        if not isinstance(face, Face):
            raise InvalidValue(f"an entry point of {GROUP!r} must name a Face, not a {type(face).__name__}")
    return tuple(sorted(found, key=lambda face: face.name))


def face(name: str) -> Face:
    """Return the face with this name."""
    for each in faces():
        if each.name == name:
            return each
    raise InvalidValue(f"there is no face {name!r}; choose one of: {', '.join(each.name for each in faces())}")


def check_kind(subject: Subject) -> None:
    """Raise InvalidValue if no face has subjects of this kind."""
    kinds = sorted({kind for each in faces() for kind in each.kinds})
    if subject.kind not in kinds:
        raise InvalidValue(f"{subject.kind!r} is not a kind of subject; choose one of: {', '.join(kinds)}")


async def locations(kernel: Kernel, subject: Subject) -> AsyncIterator[tuple[Face, SubjectLocation]]:
    """Yield where each face has records of this subject. A name that can't be stored has none."""
    for each in faces():
        with contextlib.suppress(InvalidName):
            async for location in each.locate(kernel, subject):
                check_partition(location.scope.partition)
                if (root := each.root(location.kind)) is not None:
                    check_key(root.key_of(location.ref))
                yield each, location
