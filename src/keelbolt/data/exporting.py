"""Exports one subject, or everything, as lines of JSON that any engine can import.

    with open("session-1.jsonl", "wb") as file:
        await export(kernel, Subject(kind="session", id="session-1"), file)

A subject is written as a group of lines. Its own record comes last, so that an import makes the subject visible only
when it is complete. Leases and claims are not exported: an import enqueues unfinished work again. The format is
described in docs/howto/export.md.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from keelbolt.data.erasing import declare
from keelbolt.data.families import (
    EVERYTHING,
    Face,
    Family,
    Lookup,
    Reference,
    Subject,
    SubjectLocation,
    check_kind,
    faces,
    locations,
)
from keelbolt.data.lines import FORMAT, Line, LineWriter, body, encoded
from keelbolt.errors import BlobNotFound, LogTrimmed, StorageCorrupt, SubjectInUse, SubjectNotFound
from keelbolt.kernel import Detach, Kernel, LogState, Record, Scope

ATTEMPTS = 5  # reads of a subject that is written to at the same time
GROUP = 200  # records that are not subjects, in one group
PAGE_BYTES = 1024 * 1024
SPOOLED_BYTES = 4 * 1024 * 1024  # a larger group is buffered in a temporary file


class ExportProgress(NamedTuple):
    """Progress of an export or import."""

    records: int
    bytes: int


Tell = Callable[[ExportProgress], None]


@dataclass(slots=True)
class Exported:
    """Counts of the export. ``skipped`` names the subjects that changed during every attempt to read them."""

    groups: int = 0
    records: int = 0
    bytes: int = 0
    skipped: list[str] = field(default_factory=list)


class _Unstable(Exception):
    """The group changed while it was read."""


async def export(
    kernel: Kernel,
    subject: Subject | None,
    file: BinaryIO,
    *,
    tell: Tell | None = None,
) -> Exported:
    """Write all data of the subject to the file; with None, all data of the store.

    Raise SubjectNotFound if the subject has no data. If a subject changes during every attempt to read it, raise
    SubjectInUse; an export of everything skips it instead.
    """
    if subject is not None:
        check_kind(subject)
    await declare(kernel)
    exported, writer = Exported(), LineWriter(file)
    named = None if subject is None else {"kind": subject.kind, "id": subject.id}
    writer.write(encoded({"keelbolt": "export", "format": FORMAT, "subject": named}))
    async for face, target in locations(kernel, subject) if subject is not None else _everything(kernel):
        one = _Exporter(face, target.scope, writer, exported, tell)
        await one.export(target)
    if subject is not None and exported.skipped:
        raise SubjectInUse(f"other processes keep writing to {exported.skipped[0]}; stop its worker, then export it")
    if subject is not None and not exported.groups:
        raise SubjectNotFound(f"there is no {subject.kind} {subject.id!r}")
    writer.write(encoded({"end": {"groups": exported.groups, "records": exported.records}}))
    exported.bytes = writer.bytes
    return exported


async def _everything(kernel: Kernel) -> AsyncIterator[tuple[Face, SubjectLocation]]:
    async for scope in kernel.scopes():
        for face in faces():
            if face.owns(scope):
                yield face, SubjectLocation(scope, EVERYTHING)


class _Exporter:
    """Writes subjects of one face in one scope."""

    def __init__(self, face: Face, scope: Scope, writer: LineWriter, exported: Exported, tell: Tell | None) -> None:
        self._scope = scope
        self._face = face
        self._writer = writer
        self._exported = exported
        self._tell = tell
        self._whole = False
        self._seen: set[bytes] = set()  # digests of written subjects and loose records

    async def export(self, target: SubjectLocation) -> None:
        if target.kind != EVERYTHING:
            await self._subject(Reference(target.kind, target.ref))
            return
        self._whole = True
        families = [family for family in self._face.families if _travels(family)]
        for family in families:
            for query in family.hidden:
                await self._loose(family, self._scope.scan(query))
            for query in () if _alone(family) else family.queries():
                await self._loose(family, self._homeless(family, self._scope.scan(query)))
        for family in families:  # subjects follow the records that belong to no subject
            for query in () if family.subject is None else family.queries():
                async for record in self._scope.scan(query):
                    if family.key_of(family.ref_of(record)) == record.key:
                        await self._subject(Reference(str(family.subject), family.ref_of(record)))

    async def _homeless(self, family: Family, found: AsyncIterator[Record]) -> AsyncIterator[Record]:
        """Yield the records that no subject's group contains, because they have no subject or its record is missing."""
        home = self._face.home(family)
        root = None if home is None else self._face.root(home[0])
        some: list[Record] = []

        async def checked() -> list[Record]:
            if home is None or root is None:
                return some
            named = [record.fields.get(home[1].name) for record in some]
            refs = list({str(ref) for ref in named if ref is not None})
            found = await self._scope.get_many(root.name, [root.key_of(ref) for ref in refs])
            there = {ref for ref, subject in zip(refs, found, strict=True) if subject is not None}
            return [record for record, ref in zip(some, named, strict=True) if ref is None or str(ref) not in there]

        async for record in found:
            some.append(record)
            if len(some) == GROUP:
                for each in await checked():
                    yield each
                some = []
        for each in await checked():
            yield each

    async def _loose(self, family: Family, found: AsyncIterator[Record]) -> None:
        """Write records that are not subjects, up to GROUP of them in a group."""
        some: list[tuple[Family, Record]] = []
        size = 0
        async for record in found:
            if self._known("", family.name, record.key):
                continue
            some.append((family, record))
            size += len(record.body)
            if len(some) == GROUP or size > PAGE_BYTES:
                await self._group(Reference("", some[0][1].key), None, some)
                some, size = [], 0
        if some:
            await self._group(Reference("", some[0][1].key), None, some)

    async def _subject(self, subject: Reference) -> None:
        """Write the subjects that this subject consists of, then its own group, then the subjects that it leads to."""
        if self._known(*subject):
            return
        for family, lookup in self._face.members(subject.kind):
            if self._whole and family.queries():
                continue  # the export of the whole partition lists this family separately
            if family.subject not in (None, subject.kind) and _travels(family):
                async for record in lookup(self._scope, family.collection, subject.ref):
                    await self._subject(Reference(str(family.subject), family.ref_of(record)))
        root = self._face.root(subject.kind)
        if root is not None and not _travels(root):
            root = None
        for further in await self._group(subject, root):
            await self._subject(further)

    def _known(self, *place: str) -> bool:
        """Return whether this was written already, and remember it: a scan returns a record again that moved in it."""
        mark = hashlib.blake2b("\0".join(place).encode(), digest_size=16).digest()
        known = mark in self._seen
        self._seen.add(mark)
        return known

    # ------------------------------------------------------------------------------------------------------- groups

    async def _group(
        self, subject: Reference, root: Family | None, records: Iterable[tuple[Family, Record]] = ()
    ) -> list[Reference]:
        """Write one group and return the subjects that it leads to.

        The group is consistent as far as the versions of its subject's record and its logs show.
        """
        for _ in range(ATTEMPTS):
            with tempfile.SpooledTemporaryFile(max_size=SPOOLED_BYTES) as spool:
                group = _Group(self._scope, self._face, spool, whole=self._whole)
                try:
                    count = await group.write(subject, root, records)
                except (_Unstable, LogTrimmed, BlobNotFound):
                    continue
                if count:
                    spool.seek(0)
                    for line in spool:
                        self._writer.write(line[:-1])
                    self._exported.groups += 1
                    self._exported.records += count
                    if self._tell is not None:
                        self._tell(ExportProgress(self._exported.records, self._writer.bytes))
                return group.leads_to
        self._exported.skipped.append(f"{subject.kind or self._face.name} {subject.ref!r}")
        return []


class _Group:
    """Writes the lines of one group into a spool."""

    def __init__(self, scope: Scope, face: Face, spool: tempfile.SpooledTemporaryFile[bytes], *, whole: bool) -> None:
        self._scope = scope
        self._face = face
        self._spool = spool
        self._whole = whole
        self._count = 0
        self._blobs: set[str] = set()
        self._written: set[tuple[str, str]] = set()
        self._streams: list[tuple[str, str, LogState]] = []
        self.leads_to: list[Reference] = []

    async def write(self, subject: Reference, root: Family | None, records: Iterable[tuple[Family, Record]]) -> int:
        """Write the group and return its number of records. Raise _Unstable if something changed meanwhile."""
        own = None if root is None else await self._scope.get(root.name, root.key_of(subject.ref))
        self._put(
            {
                "group": [self._face.name, self._scope.partition, *subject],
                "root": None if root is None or own is None else [root.name, own.key, fingerprint(own)],
            }
        )
        for family, record in records:
            await self._record(family, record)
        for family, lookup in self._members(subject.kind):
            if family.subject in (None, subject.kind) and _travels(family):
                async for record in lookup(self._scope, family.collection, subject.ref):
                    if own is None or (record.collection, record.key) != (own.collection, own.key):
                        await self._record(family, record)
        if root is not None and own is not None:
            await self._record(root, own)
            if fingerprint(await self._scope.get(root.name, own.key)) != fingerprint(own):
                raise _Unstable
        for log, stream, state in self._streams:
            if await self._scope.log_state(log, stream) != state:
                raise _Unstable
        self._put({"done": self._count})
        return self._count

    def _members(self, kind: str) -> list[tuple[Family, Lookup]]:
        if not self._whole:
            return self._face.members(kind)
        homes = [(family, self._face.home(family)) for family in self._face.families]
        return [(family, home[1]) for family, home in homes if home is not None and home[0] == kind]

    async def _record(self, family: Family, record: Record) -> None:
        """Write everything that shares the key of this record, then the record itself; each record once."""
        if (record.collection, record.key) in self._written:  # saved during the scan, which then returned it again
            return
        self._written.add((record.collection, record.key))
        if family.leads_to is not None and not self._whole:
            self.leads_to += family.leads_to(record)
        for name in family.beside:
            member = next((each for each in self._face.families if each.name == name), None)
            found = await self._scope.get(name, record.key) if member is not None and _travels(member) else None
            if found is not None and member is not None:
                self._put(_line(member, found, ()))
                self._count += 1
        for log in family.logs:
            await self._log(family, log, record.key)
        for queue in family.queues:
            item = await self._scope.work(queue, record.key)
            if item is not None and item.state != "dead":
                line = {"lane": item.lane, "priority": item.priority, "max_attempts": item.max_attempts}
                self._put({"work": queue, "key": record.key, **line, "ready_in": max(item.ready_in, 0.0)})
        held = [] if family.blobs is None else list(family.blobs(record))
        for detach in held:
            await self._blob(detach.digest)
        self._put(_line(family, record, held))
        self._count += 1

    async def _log(self, family: Family, log: str, stream: str) -> None:
        state = await self._scope.log_state(log, stream)
        if not state.head:
            return
        self._streams.append((log, stream, state))
        self._put({"stream": log, "of": stream, "floor": state.floor, "head": state.head})
        after = state.floor
        while after < state.head:
            page = await self._scope.read_log(log, stream, after=after, max_bytes=PAGE_BYTES)
            if not page.entries or page.head != state.head:
                raise _Unstable
            for entry in page.entries:
                line: Line = {"entry": entry.seq, "kind": entry.kind, **body(entry.data)}
                dedupe = None if family.dedupe is None else family.dedupe(log, entry)
                self._put(line if dedupe is None else {**line, "dedupe": dedupe})
            after = page.entries[-1].seq

    async def _blob(self, digest: str) -> None:
        if digest in self._blobs:
            return
        self._blobs.add(digest)
        reader, seen = await self._scope.open_blob(digest), hashlib.sha256()
        self._put({"blob": digest, "size": reader.size})
        async for chunk in reader.chunks():
            seen.update(chunk)
            self._put({"chunk": base64.b64encode(chunk).decode()})
        if seen.hexdigest() != digest:
            raise StorageCorrupt

    def _put(self, line: Line) -> None:
        self._spool.write(encoded(line) + b"\n")


def fingerprint(record: Record | None) -> str:
    """Return a digest of the record's version, fields and body; equal records have equal digests."""
    if record is None:
        return ""
    fields = sorted((name, value) for name, value in record.fields.items() if value is not None)
    return hashlib.sha256(encoded({"v": record.version, "f": fields}) + record.body).hexdigest()


def _line(family: Family, record: Record, held: Sequence[Detach]) -> Line:
    line: Line = {
        "record": record.collection,
        "key": record.key,
        "version": record.version,
        "fields": {name: value for name, value in record.fields.items() if value is not None},
        **body(record.body),
    }
    if (expires := None if family.expires is None else family.expires(record)) is not None:
        line["expires"] = expires
    if held:
        line["blobs"] = [[detach.digest, detach.holder] for detach in held]
    return line


def _alone(family: Family) -> bool:
    """Return whether each record of the family is a subject of its own."""
    return family.subject is not None and family.subject not in family.found_by


def _travels(family: Family) -> bool:
    return family.travels
