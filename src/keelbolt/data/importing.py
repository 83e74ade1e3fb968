"""Imports exports. A small group of lines is one commit; the subject of a larger group becomes visible at its end.

A group that needs several commits has a record in IMPORTS until it is complete. To finish an interrupted import, import
the same file again: the import compares the stored data and continues after it. Stored data is never changed: if a
group differs from the data stored under the same keys, SubjectExists is raised.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

from keelbolt.data.erasing import declare
from keelbolt.data.exporting import ExportProgress, Tell, fingerprint
from keelbolt.data.families import IMPORTS, Face, Family, faces, import_key
from keelbolt.data.lines import Line, LineReader, bytes_of, check
from keelbolt.errors import BadExport, CommitRefused, InvalidRequest, InvalidValue, StorageBusy, SubjectExists
from keelbolt.kernel import (
    Append,
    Attach,
    Delete,
    Draft,
    Enqueue,
    Entry,
    Head,
    Kernel,
    Operation,
    Put,
    Record,
    Restore,
    Scope,
    Start,
)

BATCH = 400  # operations in a commit
BATCH_BYTES = 4 * 1024 * 1024
PAGE = 500
_OTHERS = "another process writes to the data of this import; stop it, then import again"


@dataclass(slots=True)
class Imported:
    """Counts of the import. ``new`` is the number of records that were not stored before."""

    groups: int = 0
    records: int = 0
    new: int = 0
    bytes: int = 0


async def import_export(kernel: Kernel, file: BinaryIO, *, tell: Tell | None = None) -> Imported:
    """Import an export.

    Raise BadExport, with the line number, if the file is not an export, or is damaged, truncated or of a newer format.
    A seekable file is checked completely first, so nothing of a bad file is imported. From a pipe, the groups before
    the bad line are imported. Raise SubjectExists for a subject that is stored with other content.
    """
    if file.seekable():
        start = file.tell()
        check(file)
        file.seek(start)
    chosen = {face.name: face for face in faces()}
    await declare(kernel)
    reader = LineReader(file)
    lines = iter(reader)
    imported = Imported()
    next(lines, None)
    for line in lines:
        if "end" in line:
            imported.bytes = reader.bytes
            return imported
        try:
            await _group(kernel, chosen, line, lines, reader, imported)
        except (KeyError, TypeError, ValueError, AttributeError, InvalidRequest) as error:
            if isinstance(error, BadExport | SubjectExists):
                raise
            raise reader.refusal(f"can't be imported: {error}") from error
        imported.groups += 1
        if tell is not None:
            tell(ExportProgress(imported.records, reader.bytes))
    raise (
        reader.refusal("is the last line, but not the end of the export: the file is truncated")
        if reader.number
        else BadExport("the file is empty")
    )


async def _group(
    kernel: Kernel, chosen: dict[str, Face], head: Line, lines: Iterator[Line], reader: LineReader, imported: Imported
) -> None:
    name, partition, kind, ref = head["group"]
    if name not in chosen:
        raise InvalidValue(f"the face {name!r} is not installed here; installed: {', '.join(chosen)}")
    face = chosen[name]
    scope = kernel.scoped(partition)
    if not face.owns(scope):
        raise InvalidValue(f"{partition!r} is not a partition of {name}")
    group = _Group(scope, face, import_key(name, kind, ref), reader, imported)
    await group.begin(head["root"])
    async for line in _async(lines):
        if "done" in line:
            await group.end()
            return
        if "record" in line:
            await group.record(line)
        elif "blob" in line:
            await group.blob(line, lines)
        elif "stream" in line:
            await group.stream(line)
        elif "entry" in line:
            await group.entry(line)
        elif "work" in line:
            group.work(line)
        else:
            raise reader.refusal("is of an unknown kind")
    raise reader.refusal("is the last line, but not the end of the export: the file is truncated")


async def _async(lines: Iterator[Line]) -> AsyncIterator[Line]:
    for line in lines:
        yield line


class _Group:
    """Writes one group."""

    def __init__(self, scope: Scope, face: Face, key: str, reader: LineReader, imported: Imported) -> None:
        self._scope = scope
        self._families = {family.name: family for family in face.families}
        self._logs = {log: family for family in face.families for log in family.logs}
        self._queues = {queue for family in face.families for queue in family.queues}
        self._key = key
        self._reader = reader
        self._imported = imported
        self._root: tuple[str, str] | None = None
        self._there = False  # the subject is already stored completely
        self._marked = False
        self._records: dict[tuple[str, str], tuple[Record, list[Operation]]] = {}
        self._operations: list[Operation] = []
        self._last: list[Operation] = []  # operations of the commit that ends the group
        self._size = 0
        self._stream: _Stream | None = None

    async def begin(self, root: list[str] | None) -> None:
        self._marked = await self._scope.get(IMPORTS, self._key) is not None
        if root is None:
            return
        collection, key, digest = root
        self._root = (collection, key)
        found = await self._scope.get(self._family(collection).name, key)
        if found is None:
            return
        if fingerprint(found) != digest:
            raise self._exists(f"{self._family(collection).title} {key!r}")
        self._there = not self._marked

    async def end(self) -> None:
        await self._leave_stream()
        while len(self._last) > BATCH:
            if not self._marked:
                self._marked = True
                self._operations.append(Put(IMPORTS, self._key, b""))
            await self._flush()
            self._last, further = self._last[:BATCH], self._last[BATCH:]
            await self._flush(last=True)
            self._last = further
        if self._marked:
            self._last.append(Delete(IMPORTS, self._key))
        await self._flush(last=True)

    # -------------------------------------------------------------------------------------------------------- lines

    async def record(self, line: Line) -> None:
        await self._leave_stream()
        family, now = self._family(line["record"]), time.time()
        self._imported.records += 1
        record = Record(line["record"], line["key"], line["version"], bytes_of(line), line["fields"])
        expires = line.get("expires")
        if expires is not None and expires <= now:
            return
        if family.restore is not None:
            await self._restore(family, record, family.restore)
            return
        left = None if expires is None or not family.collection.expiring else expires - now
        write = Restore(record.collection, record.key, record.version, record.body, record.fields, left)
        attached: list[Operation] = [Attach(digest, holder) for digest, holder in line.get("blobs", ())]
        if self._count() + len(attached) >= BATCH:
            await self._flush()
        self._records[record.collection, record.key] = record, [write, *attached]
        if (record.collection, record.key) != self._root:
            await self._add(len(record.body))

    async def blob(self, line: Line, lines: Iterator[Line]) -> None:
        """Stage the bytes of the following lines and compare their digest."""
        await self._leave_stream()
        staged = await self._scope.stage_blob(self._chunks(line["size"], lines))
        if staged.digest != line["blob"]:
            raise self._reader.refusal("ends a blob whose bytes do not match its digest")

    async def _chunks(self, size: int, lines: Iterator[Line]) -> AsyncIterator[bytes]:
        left = size
        while left > 0:
            line = next(lines, {})
            try:
                chunk = base64.b64decode(line["chunk"], validate=True)
            except (KeyError, TypeError, ValueError, binascii.Error):
                raise self._reader.refusal("is not part of a blob") from None
            left -= len(chunk)
            yield chunk

    async def stream(self, line: Line) -> None:
        await self._leave_stream()
        log, stream, floor = line["stream"], line["of"], line["floor"]
        if log not in self._logs:
            raise InvalidValue(f"there is no log {log!r}")
        state = await self._scope.log_state(log, stream)
        if (state.head and state.floor != floor) or state.head > line["head"]:
            raise self._exists(f"the log {log} of {stream!r}")
        if not state.head and floor:
            self._operations.append(Start(log, stream, floor))
            await self._flush()
        self._stream = _Stream(log, stream, max(state.head, floor))

    async def entry(self, line: Line) -> None:
        stream = self._stream
        if stream is None:
            raise self._reader.refusal("is an entry without a stream")
        data = bytes_of(line)
        if line["entry"] <= stream.stored:
            if await stream.kept(self._scope, line["entry"]) != (line["kind"], data):
                raise self._exists(f"the log {stream.log} of {stream.name!r}")
            return
        stream.drafts.append(Draft(line["kind"], data, line.get("dedupe")))
        stream.size += len(data)
        if len(stream.drafts) >= BATCH or stream.size >= BATCH_BYTES:
            await self._append()
            await self._flush()

    def work(self, line: Line) -> None:
        if line["work"] not in self._queues:
            raise InvalidValue(f"there is no queue {line['work']!r}")
        if not self._there:
            options = {name: line[name] for name in ("lane", "priority", "max_attempts", "ready_in")}
            self._last.append(Enqueue(line["work"], line["key"], **options))

    # ------------------------------------------------------------------------------------------------------ writing

    async def _restore(
        self, family: Family, record: Record, restore: Callable[[Scope, Record], Awaitable[None]]
    ) -> None:
        found = await self._scope.get(record.collection, record.key)
        if found is not None and (found.body, dict(found.fields)) != (record.body, dict(record.fields)):
            raise self._exists(f"{family.title} {record.key!r}")
        if found is None:
            await self._flush()
            await restore(self._scope, record)
            self._imported.new += 1

    async def _add(self, size: int) -> None:
        self._size += size
        if self._count() >= BATCH or self._size >= BATCH_BYTES:
            await self._flush()

    def _count(self) -> int:
        """Return the number of collected operations."""
        return len(self._operations) + sum(len(writes) for _, writes in self._records.values())

    async def _append(self) -> None:
        """Queue the collected entries of the stream for appending after the stored ones."""
        stream = self._stream
        if stream is None or not stream.drafts:
            return
        append = Append(stream.log, stream.name, tuple(stream.drafts))
        self._operations += [Head(stream.log, stream.name, stream.stored), append]
        self._size += stream.size
        stream.stored += len(stream.drafts)
        stream.drafts, stream.size = [], 0

    async def _leave_stream(self) -> None:
        await self._append()
        self._stream = None
        await self._add(0)

    async def _flush(self, *, last: bool = False) -> None:
        """Commit the collected operations; the record of the subject only at the end of the group."""
        records = {place: each for place, each in self._records.items() if last or place != self._root}
        operations = [*self._operations, *(self._last if last else ())]
        for _ in range(3):
            writes = list(chain.from_iterable(writes for _, writes in records.values()))
            if not writes and not operations:
                break
            mark: list[Operation] = []
            if not last and not self._marked:
                mark.append(Put(IMPORTS, self._key, b""))
            try:
                await self._scope.commit(*writes, *operations, *mark)
            except CommitRefused as refused:
                if not isinstance(refused.check, Restore):
                    raise StorageBusy(_OTHERS) from refused
                records = await self._missing(records)
                continue
            self._marked = self._marked or bool(mark)
            self._imported.new += len(records)
            break
        else:
            raise StorageBusy(_OTHERS)
        self._records = {place: each for place, each in self._records.items() if not last and place == self._root}
        self._operations, self._size = [], 0

    async def _missing(
        self, records: dict[tuple[str, str], tuple[Record, list[Operation]]]
    ) -> dict[tuple[str, str], tuple[Record, list[Operation]]]:
        """Return the records that are not stored. Raise SubjectExists for one that is stored with other content."""
        missing = {}
        for place, (record, writes) in records.items():
            found = await self._scope.get(*place)
            if found is None:
                missing[place] = record, writes
            elif fingerprint(found) != fingerprint(record):
                raise self._exists(f"{self._family(place[0]).title} {place[1]!r}")
        return missing

    def _family(self, name: str) -> Family:
        if name not in self._families:
            raise InvalidValue(f"there is no family {name!r}")
        return self._families[name]

    def _exists(self, what: str) -> SubjectExists:
        return SubjectExists(
            f"line {self._reader.number}: {what} is already stored with other content; erase it first, or leave it out"
        )


class _Stream:
    """A stream being imported. ``stored`` is the last seq that is stored, or will be with the next commit."""

    def __init__(self, log: str, name: str, stored: int) -> None:
        self.log = log
        self.name = name
        self.stored = stored
        self.drafts: list[Draft] = []
        self.size = 0
        self._page: dict[int, Entry] = {}

    async def kept(self, scope: Scope, seq: int) -> tuple[str, bytes] | None:
        """Return the kind and data of a stored entry, or None."""
        if seq not in self._page:
            page = await scope.read_log(self.log, self.name, after=seq - 1, limit=PAGE)
            self._page = {entry.seq: entry for entry in page.entries}
        found = self._page.get(seq)
        return None if found is None else (found.kind, found.data)
