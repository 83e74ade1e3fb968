"""Lists, shows and counts the data of any face, from its declarations: one JSON shape for the CLI, the API and pages.

    look = Inspection(kernel)
    look.families()                                                    # what there is to list
    await look.records("langgraph_heads", limit=20)                    # threads, the newest first
    await look.describe(Subject(kind="thread", id="t-1"))              # one subject: its record, and counts by family
    await look.records("langgraph_checkpoints", of=Subject(kind="thread", id="t-1"))
    await look.show(ref)                                               # one record with its content
    await look.entries(ref, "adk_events")                              # a log that belongs to a record

A record in a list:

    {"face", "family", "title", "ref", "id", "subject": {"kind", "id"} | null, "partition", "updated", "version",
     "size", "fields"}

``ref`` is the address of the record for `show` and `entries`; ``subject`` is set if users can name the record, for
example in `describe`. Times are ISO 8601 in UTC. A list has ``records`` and ``nextPageToken``, empty on the last page.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from keelbolt.data.display import LARGE_BYTES, log_page, plain, plain_body, when
from keelbolt.data.families import (
    EVERYTHING,
    IMPORTS,
    ByAny,
    ByField,
    ByKey,
    ByScan,
    Face,
    Family,
    Lookup,
    Subject,
    SubjectLocation,
    age_in_seconds,
    check_kind,
    faces,
    import_key,
    locations,
)
from keelbolt.errors import BadCursor, InvalidValue, SubjectNotFound
from keelbolt.kernel import Entry, Kernel, Page, Query, Record, Scope

PAGE = 50
MAX_PAGE = 500
CAP = 10_000  # maximum of a count
SCANNED = 500  # records that are read together to find those of a subject

Shown = dict[str, Any]


class Inspection:
    """Reads one open kernel. Unknown families and subject kinds raise InvalidValue, unknown refs SubjectNotFound."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._families = {family.name: (face, family) for face in faces() for family in face.families}
        self._declared: set[str] = set()

    # ------------------------------------------------------------------------------------------------------- lists

    def families(self) -> list[Shown]:
        """Return the families that can be listed: ``face``, ``family`` (the name to list it by), ``title``, ``kinds``.

        ``whole`` is true if `records` can list the family without a subject.
        """
        return [
            {
                "face": face.name,
                "family": family.name,
                "title": family.title,
                "kinds": list(face.kinds),
                "whole": bool(family.queries()),
                "logs": list(family.logs),
            }
            for face, family in self._families.values()
            if family.queries() or family.found_by
        ]

    async def records(
        self,
        family: str,
        *,
        of: Subject | None = None,
        tenant: str = "",
        owner: str = "",
        limit: int = PAGE,
        cursor: str | None = None,
    ) -> Shown:
        """Return a page of a family: ``records`` and ``nextPageToken``. With an age field, the newest come first.

        ``of`` lists the records of a subject; ``tenant`` and ``owner`` restrict a list of the whole family.
        """
        face, member = await self._family(family)
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidValue(f"limit is a number from 1 to {MAX_PAGE}, not {limit}")
        start = _read(cursor)
        found: list[Shown] = []
        async for place, source in self._sources(face, member, of, tenant, owner):
            if start is not None and place < start[:2]:
                continue
            after = start[2] if start is not None and place == start[:2] else None
            while True:
                if len(found) >= limit:
                    return {"records": found, "nextPageToken": _write([*place, after])}
                page = await source.page(limit - len(found), after)
                found += [self._listed(face, member, source.scope, record) for record in page.records]
                after = page.cursor
                if after is None:
                    break
        return {"records": found, "nextPageToken": ""}

    async def count(
        self, family: str, *, of: Subject | None = None, tenant: str = "", owner: str = "", cap: int = CAP
    ) -> Shown:
        """Count the records: ``family``, ``title``, ``count`` and ``exact``. A count stops at ``cap``."""
        face, member = await self._family(family)
        total, exact = 0, True
        async for _, source in self._sources(face, member, of, tenant, owner):
            if total >= cap:
                exact = False
                break
            count, whole = await source.count(cap - total)
            total, exact = total + count, exact and whole
        return {"family": family, "title": member.title, "count": total, "exact": exact}

    # ---------------------------------------------------------------------------------------------- single records

    async def describe(self, subject: Subject) -> Shown:
        """Describe a subject: ``kind``, ``id`` and ``found``, a list with one object for each location of its data.

        Each object has ``face``, ``record`` (as `show` returns it; null if the subject has no record of its own) and
        ``members``: the families that have records of the subject, as `count` returns them. ``incomplete``: an import
        of the subject was interrupted. Raise SubjectNotFound if there is no data.
        """
        check_kind(subject)
        found: list[Shown] = []
        async for face, target in locations(self._kernel, subject):
            await self._declare(face)
            described = await self._described(face, target)
            if described["record"] is not None or described["members"]:
                found.append(described)
        if not found:
            raise SubjectNotFound(f"there is no {subject.kind} {subject.id!r}")
        return {"kind": subject.kind, "id": subject.id, "found": found}

    async def show(self, ref: str) -> Shown:
        """Return one record as in a list, with ``value`` and its related data: ``beside``, ``logs`` and ``work``."""
        face, family, scope, record = await self._record(ref)
        return await self._shown(face, family, scope, record)

    async def entries(self, ref: str, log: str, *, after: int | None = None, limit: int = 100) -> Shown:
        """Return a page of this record's log after a seq, or the last one: ``seq``, ``kind``, ``at``, ``value``."""
        _, family, scope, record = await self._record(ref)
        if log not in family.logs:
            raise InvalidValue(f"{family.title} have no log {log!r}")
        show = partial(_entry, family)
        return await log_page(scope, log, record.key, show, after=after, limit=limit, last=True)

    # ---------------------------------------------------------------------------------------------------- internal

    async def _family(self, name: str) -> tuple[Face, Family]:
        if name not in self._families:
            raise InvalidValue(f"there is no family {name!r}; choose one of: {', '.join(sorted(self._families))}")
        face, family = self._families[name]
        await self._declare(face)
        return face, family

    async def _declare(self, face: Face) -> None:
        if face.name not in self._declared:
            await self._kernel.declare(*face.collections())
            self._declared.add(face.name)

    async def _sources(
        self, face: Face, family: Family, of: Subject | None, tenant: str, owner: str
    ) -> AsyncIterator[tuple[list[Any], _Source]]:
        """Yield the sources of the records in a fixed order, each with its position in this order."""
        if of is None:
            if not family.queries():
                raise InvalidValue(f"{family.title} are listed for one subject at a time; pass the subject")
            async for scope in face.scopes(self._kernel, tenant=tenant, owner=owner):
                for number, query in enumerate(family.queries()):
                    yield [scope.partition, number], _Source(scope, family, query)
            return
        check_kind(of)
        place = 0
        async for target in face.locate(self._kernel, of):
            for source in self._of_target(family, target):
                yield [f"{place:09}", 0], source
                place += 1

    def _of_target(self, family: Family, target: SubjectLocation) -> list[_Source]:
        scope = target.scope
        if target.kind == EVERYTHING:
            return [_Source(scope, family, query) for query in family.queries()]
        if target.kind in family.found_by:
            lookup = family.found_by[target.kind]
            lookups = lookup.lookups if isinstance(lookup, ByAny) else (lookup,)
            return [source for each in lookups for source in _sources_of(scope, family, each, target.ref)]
        if family.subject == target.kind:
            return [_Source(scope, family, lookup=ByKey(), ref=family.key_of(target.ref))]
        return []

    async def _described(self, face: Face, target: SubjectLocation) -> Shown:
        scope = target.scope
        record: Shown | None = None
        members: list[Shown] = []
        for family in face.families:
            if family.subject == target.kind:
                found = await scope.get(family.name, family.key_of(target.ref))
                record = None if found is None else await self._shown(face, family, scope, found)
                if target.kind not in family.found_by:
                    continue
            counts = [await source.count(CAP) for source in self._of_target(family, target)]
            if any(count for count, _ in counts):
                total, exact = sum(count for count, _ in counts), all(exact for _, exact in counts)
                members.append({"family": family.name, "title": family.title, "count": total, "exact": exact})
        marked = await scope.get(IMPORTS, import_key(face.name, target.kind, target.ref))
        place: Shown = {"face": face.name, "partition": scope.partition, "incomplete": marked is not None}
        return {**place, "record": record, "members": members}

    async def _record(self, ref: str) -> tuple[Face, Family, Scope, Record]:
        partition, name, key = _unpacked(ref)
        if not isinstance(name, str) or not isinstance(key, str) or name not in self._families:
            raise SubjectNotFound("there is no such record")
        face, family = await self._family(name)
        scope = self._kernel.scoped(partition)
        record = await scope.get(name, key) if face.owns(scope) else None
        if record is None:
            raise SubjectNotFound("there is no such record")
        return face, family, scope, record

    def _listed(self, face: Face, family: Family, scope: Scope, record: Record) -> Shown:
        kind, id_ = _name(face, family, record) or (None, record.key)
        seconds = None if family.age is None else age_in_seconds(record.fields.get(family.age))
        return {
            "face": face.name,
            "family": family.name,
            "title": family.title,
            "ref": _write([scope.partition, family.name, record.key]),
            "id": id_,
            "subject": None if kind is None else {"kind": kind, "id": id_},
            "partition": scope.partition,
            "updated": None if seconds is None else when(int(seconds * 1_000_000)),
            "version": record.version,
            "size": len(record.body),
            "fields": _without(dict(record.fields), family.hides),
        }

    async def _shown(self, face: Face, family: Family, scope: Scope, record: Record) -> Shown:
        value = plain_body(record.body) if family.value is None else await family.value(scope, record)
        beside: Shown = {}
        for name in family.beside:
            found = await scope.get(name, record.key)
            member = self._families[name][1] if name in self._families else None
            if found is not None:
                shows = None if member is None else member.value
                beside[name] = plain_body(found.body) if shows is None else await shows(scope, found)
        logs = [(log, await scope.log_state(log, record.key)) for log in family.logs]
        items = [await scope.work(queue, record.key) for queue in family.queues]
        return {
            **self._listed(face, family, scope, record),
            "value": _without(value, family.hides),
            "beside": beside,
            "logs": [{"log": log, "head": state.head, "floor": state.floor} for log, state in logs],
            "work": [
                {"queue": item.queue, "state": item.state, "attempt": item.attempt, "holder": item.holder}
                for item in items
                if item is not None
            ],
        }


class _Source:
    """Records of a family in one partition: the results of a query that match, or of any other lookup."""

    def __init__(
        self,
        scope: Scope,
        family: Family,
        query: Query | None = None,
        match: Callable[[Record, str], bool] | None = None,
        *,
        lookup: Lookup | None = None,
        ref: str = "",
    ) -> None:
        self.scope = scope
        self._family = family
        self._query = query
        self._match = match
        self._lookup = lookup
        self._ref = ref

    async def page(self, limit: int, after: str | None) -> Page:
        """Return at most ``limit`` records. A query has the kernel's cursor, any other lookup an offset."""
        if self._query is not None:
            newest = self._query.order is not None
            query = Query(self._query.collection, self._query.equal, self._query.order, newest_first=newest)
            if self._match is None:
                return await self.scope.find(query, limit=limit, cursor=after)
            return await self._matching(query, limit, after)
        if after is not None and not after.isdecimal():
            raise BadCursor
        start, number, found = int(after or 0), 0, list[Record]()
        async for record in self._all():
            number += 1
            if number > start + limit:
                return Page(tuple(found), str(start + limit), 0)
            if number > start:
                found.append(record)
        return Page(tuple(found), None, 0)

    async def _matching(self, query: Query, limit: int, after: str | None) -> Page:
        """Return the matching records among the next SCANNED; the cursor comes after the last one returned."""
        page = await self.scope.find(query, limit=SCANNED, cursor=after)
        places = [place for place, record in enumerate(page.records, 1) if self._matches(record)]
        if len(places) > limit:
            page = await self.scope.find(query, limit=places[limit - 1], cursor=after)
        return Page(tuple(filter(self._matches, page.records)), page.cursor, page.started_at)

    def _matches(self, record: Record) -> bool:
        return self._match is None or self._match(record, self._ref)

    async def count(self, cap: int) -> tuple[int, bool]:
        if self._query is not None and self._match is None:
            counted = await self.scope.count(self._query, cap=cap)
            return counted.value, counted.exact
        count = 0
        async for _ in self._all():
            if count >= cap:
                return count, False
            count += 1
        return count, True

    async def _all(self) -> AsyncIterator[Record]:
        if self._lookup is not None:
            async for record in self._lookup(self.scope, self._family.collection, self._ref):
                yield record
        elif self._query is not None:
            async for record in self.scope.scan(self._query):
                if self._matches(record):
                    yield record


def _sources_of(scope: Scope, family: Family, lookup: Lookup, ref: str) -> list[_Source]:
    if isinstance(lookup, ByScan):
        return [_Source(scope, family, lookup.query, lookup.match, ref=ref)]
    if isinstance(lookup, ByField):
        values = (ref,) if lookup.values is None else lookup.values(ref)
        return [_Source(scope, family, lookup.query(family.collection, value)) for value in values]
    return [_Source(scope, family, lookup=lookup, ref=ref)]


def _name(face: Face, family: Family, record: Record) -> tuple[str, str] | None:
    if family.named is not None:
        return family.named(record)
    return (family.subject, record.key) if family.subject is not None and family.subject in face.kinds else None


def _entry(family: Family, log: str, entry: Entry) -> tuple[Shown]:
    value = plain_body(entry.data)
    if family.entry is not None:
        value = plain(family.entry(log, entry), large=len(entry.data) > LARGE_BYTES)
    return ({"seq": entry.seq, "kind": entry.kind, "at": when(entry.at), "value": value},)


def _without(value: Any, names: tuple[str, ...]) -> Any:
    """Return the value without the members of these names, at any depth."""
    if not names:
        return value
    if isinstance(value, dict):
        return {key: _without(item, names) for key, item in value.items() if key not in names}
    return [_without(item, names) for item in value] if isinstance(value, list) else value


def _write(parts: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).rstrip(b"=").decode()


def _unpacked(text: str) -> list[Any]:
    try:
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, TypeError):
        found = None
    if not isinstance(found, list) or len(found) != 3 or not all(isinstance(part, str) for part in found[:1]):
        raise SubjectNotFound("there is no such record")
    return found


def _read(cursor: str | None) -> list[Any] | None:
    if not cursor:
        return None
    try:
        found = _unpacked(cursor)
    except SubjectNotFound:
        raise BadCursor from None
    if not isinstance(found[1], int) or not isinstance(found[2], str | None):
        raise BadCursor
    return found
