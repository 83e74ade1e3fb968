"""Erases subjects (a task, a session, a thread, a user, a whole tenant) on any engine.

An erasure covers every record, log, work item, blob and key that belongs to the subject.

An erasure is recorded before the first deletion. If the process dies, the record remains and `resume_erasures` finishes
the erasure. The record of the subject is deleted first, together with its work item: readers no longer find the
subject, and a worker that still runs it can no longer write. If a subject is written to without a work item, the same
commit leaves a tombstone. A small subject is deleted in one commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from keelbolt.data.families import (
    ERASURES,
    EVERYTHING,
    IMPORTS,
    TOMBSTONES,
    Face,
    Family,
    Reference,
    Subject,
    SubjectLocation,
    check_kind,
    face,
    faces,
    import_key,
    locations,
)
from keelbolt.data.groups import Groups
from keelbolt.errors import CommitRefused, InvalidRequest, StorageBusy, SubjectInUse, SubjectNotFound
from keelbolt.kernel import Delete, Enqueue, Kernel, Operation, Put, Query, Record, Remove, Scope, Wiped, new_id
from keelbolt.leases import incarnation

BATCH = 200  # operations in a commit
TOGETHER = 32  # subjects whose erasure is recorded by one record
STEP_SECONDS = 0.002  # aim for one step of wiping a whole partition: other writers wait that long
STEP_RECORDS = (25, 100)  # of one step, least and most
REST = 0.5  # of a step's duration, between two steps; without it, the p99 of other writers grows 4 times, not 2
PASSES = 100
RESUME_SECONDS = 60.0  # another process continues an erasure that takes longer; both may work on it
LEASE_SECONDS = 60.0
PARTITION = "~data"  # erasures that span several partitions are recorded here

Tell = Callable[[int], None]
Outcome = Literal["nothing", "refused", "deleted"]


@dataclass(slots=True)
class Erased:
    """Number of erased records by the title of their family."""

    records: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.records.total()

    def __bool__(self) -> bool:
        return self.total > 0


async def erase(
    kernel: Kernel,
    subject: Subject,
    *,
    dry_run: bool = False,
    if_idle: bool = False,
    tell: Tell | None = None,
) -> Erased:
    """Erase all data of this subject in all faces and return the counts.

    Raise SubjectNotFound if the subject has no data. ``dry_run`` only counts. A subject in use is erased as well, and
    its worker can no longer write; with ``if_idle``, raise SubjectInUse instead.
    """
    check_kind(subject)
    await declare(kernel)
    erased = Erased()
    if if_idle:
        async for each, target in locations(kernel, subject):
            await _Eraser(each, target.scope).check_idle(target)
    recorded = False
    key = new_id()
    async for each, target in locations(kernel, subject):
        eraser = _Eraser(each, target.scope, erased, tell)
        if dry_run:
            await eraser.count(target)
            continue
        if not recorded:
            await kernel.commit(PARTITION, *_recording(key, {"subject": asdict(subject)}))
            recorded = True
        await eraser.finish()
        await eraser.erase(target)
    if recorded:
        await kernel.commit(PARTITION, *_finished(key))
    if not erased:
        raise SubjectNotFound(f"there is no {subject.kind} {subject.id!r}")
    return erased


async def erase_target(of: Face, target: SubjectLocation, *, version: int | None = None) -> Erased:
    """Erase one subject of one scope.

    With ``version``, erase it only if the record of the subject still has this version.
    """
    eraser = _Eraser(of, target.scope)
    key = f"{of.name}/{target.kind}/{target.ref}"
    also = _recording(key, {"face": of.name, "subjects": [[target.kind, target.ref]]})
    if not await eraser.erase(target, version=version, also=also):
        return Erased()
    await target.scope.commit(*_finished(key))
    return eraser.erased


async def resume_erasures(kernel: Kernel) -> int:
    """Finish the erasures that other processes left unfinished, and return their number."""
    worker = incarnation()
    count = 0
    try:
        while claims := await kernel.claim(ERASURES, worker, lease_seconds=LEASE_SECONDS):
            for claim in claims:
                await declare(kernel)
                record = await claim.scope.get(ERASURES, claim.key)
                if record is not None:
                    try:
                        await _resume(kernel, claim.scope, record)
                    except InvalidRequest as error:  # such as: the face is in a package that is not installed here
                        await claim.scope.commit(claim.retry(str(error), ready_in=RESUME_SECONDS))
                        continue
                    count += 1
                with contextlib.suppress(CommitRefused):  # the lease has expired; another process continues
                    await claim.scope.commit(Delete(ERASURES, claim.key), claim.complete())
    finally:
        await kernel.retire(worker)
    return count


async def declare(kernel: Kernel) -> None:
    """Declare the collections of all faces."""
    for each in faces():
        await kernel.declare(*each.collections())


async def _resume(kernel: Kernel, scope: Scope, record: Record) -> None:
    body = json.loads(record.body)
    if "subject" in body:
        with contextlib.suppress(SubjectNotFound):  # nothing was left
            await erase(kernel, Subject(**body["subject"]))
        return
    await _Eraser(face(body["face"]), scope).repeat(body["subjects"])


def _recording(key: str, body: dict[str, object]) -> tuple[Operation, ...]:
    text = json.dumps(body).encode()  # pydantic's JSON has no lone surrogates, which the name of a session may contain
    return Put(ERASURES, key, text), Enqueue(ERASURES, key, ready_in=RESUME_SECONDS, max_attempts=1000)


def _finished(key: str) -> tuple[Operation, ...]:
    return Delete(ERASURES, key), Remove(ERASURES, key)


async def _chained(found: Sequence[AsyncIterator[Record]]) -> AsyncIterator[Record]:
    """Yield the records of all iterators in order.

    The first record of each is read concurrently, because most iterators are empty.
    """
    first = await asyncio.gather(*(anext(each, None) for each in found))
    for record, rest in zip(first, found, strict=True):
        if record is not None:
            yield record
            async for another in rest:
                yield another


class _Eraser:
    """Erases subjects of one face in one scope."""

    def __init__(self, of: Face, scope: Scope, erased: Erased | None = None, tell: Tell | None = None) -> None:
        self._scope = scope
        self._face = of
        self._tell = tell
        self.erased = Erased() if erased is None else erased
        self._seen: set[Reference] = set()
        self._whole = False
        self._groups = Groups()

    # -------------------------------------------------------------------------------------------------------- erase

    async def finish(self) -> None:
        """Finish erasures that other processes left unfinished in this partition.

        If such a process is still running, both processes work on the erasure.
        """
        cursor: str | None = None
        while True:
            page = await self._scope.list_work(ERASURES, state="waiting", cursor=cursor)
            for item in page.items:
                record = await self._scope.get(ERASURES, item.key)
                body = {} if record is None else json.loads(record.body)
                if body.get("face") == self._face.name:
                    with contextlib.suppress(InvalidRequest):  # it can't be finished; `resume_erasures` retries it
                        await self.repeat(body["subjects"])
                        await self._scope.commit(*_finished(item.key))
            cursor = page.cursor
            if cursor is None:
                return

    async def repeat(self, subjects: Iterable[tuple[str, str]]) -> None:
        for kind, ref in subjects:
            await self.erase(SubjectLocation(self._scope, kind, ref))

    async def erase(
        self, target: SubjectLocation, *, version: int | None = None, also: Sequence[Operation] = ()
    ) -> bool:
        """Erase the target and return whether it was found at this version. The first commit includes ``also``."""
        if target.kind == EVERYTHING:
            self._whole = True
            await self._everything()
            return True
        return await self._subject(Reference(target.kind, target.ref), version=version, also=also)

    async def _everything(self) -> None:
        """Erase the whole partition. It leaves no tombstones, because they would keep the partition's name."""
        async for tombstone in self._scope.scan(Query(TOMBSTONES)):
            await self._scope.commit(Delete(TOMBSTONES, tombstone.key))
        for _ in range(PASSES):
            before = self.erased.total
            await self._wipe()
            for family in self._face.families:
                for query in (*family.hidden, *family.queries()):
                    found = self._scope.scan(query, page=BATCH)
                    if family.subject is None:
                        await self._delete((family, record) async for record in found)
                    else:
                        await self._roots(family, found)
            if self.erased.total == before:
                marks = self._scope.scan(Query(IMPORTS))
                for mark in [mark async for mark in marks if mark.key.startswith(f"{self._face.name}/")]:
                    await self._scope.commit(Delete(IMPORTS, mark.key))
                return
        raise StorageBusy("other processes keep writing to this partition; stop them, then erase it again")

    async def _wipe(self) -> None:
        """Let the engine remove all records of the partition, if it supports this.

        Subjects are removed first, so that readers no longer find them. Other writers wait for at most one step, so the
        step size adapts to the measured duration.
        """
        least, most = STEP_RECORDS
        limit = least
        beside = {name for family in self._face.families for name in family.beside}  # counted with their family
        for family in sorted(self._face.families, key=lambda family: family.subject is None):
            wiped = Wiped(family.name, family.logs, family.queues, family.blobs)
            while True:
                began = time.perf_counter()
                count = await self._scope.wipe(wiped, limit=limit)
                if count is None:
                    return
                if not count:
                    break
                took = time.perf_counter() - began
                self._counted(Counter() if family.name in beside else Counter({family.title: count}))
                if count == limit:
                    limit = max(least, min(limit * 2 if took < STEP_SECONDS else limit // 2, most))
                await asyncio.sleep(REST * took)

    async def _roots(self, family: Family, found: AsyncIterator[Record]) -> None:
        """Erase the subjects of a whole partition: their records in one commit, then the data that belongs to them."""
        together: list[Record] = []
        async for record in found:
            together.append(record)
            if len(together) == TOGETHER:
                await self._uproot(family, together)
                together = []
        if together:
            await self._uproot(family, together)

    async def _uproot(self, family: Family, records: Sequence[Record]) -> None:
        kind, key = str(family.subject), new_id()
        subjects = [(kind, family.ref_of(record)) for record in records]
        operations = [operation for record in records for operation in family.operations(record, tombstone=False)]
        operations += _recording(key, {"face": self._face.name, "subjects": subjects})
        if await self._commit(operations, Counter({family.title: len(records)})):
            for member, lookup in self._face.members(kind, whole=self._whole):
                found = _chained([lookup(self._scope, member.collection, family.ref_of(record)) for record in records])
                if member.subject is None:
                    await self._delete((member, record) async for record in found)
                else:
                    await self._roots(member, found)
            await self._scope.commit(*_finished(key))

    async def _subjects(self, found: AsyncIterator[Reference]) -> None:
        """Erase these subjects, several at a time."""
        together: list[Reference] = []
        async for reference in found:
            together.append(reference)
            if len(together) == TOGETHER:
                await self._together(together)
                together = []
        await self._together(together)

    async def _together(self, subjects: Sequence[Reference]) -> None:
        """Erase these subjects concurrently.

        The erasure is recorded first: once the record of a subject is deleted, nothing else refers to the subject.
        """
        if not subjects:
            return
        key = new_id()
        await self._scope.commit(*_recording(key, {"face": self._face.name, "subjects": subjects}))
        await self._groups.each(self._subject, subjects)
        await self._scope.commit(*_finished(key))

    async def _subject(self, subject: Reference, *, version: int | None = None, also: Sequence[Operation] = ()) -> bool:
        self._seen.add(subject)
        found, before = False, self.erased.total
        for _ in range(PASSES):
            root = await self._root(subject)
            if version is not None and (root is None or root[1].version != version):
                return found
            at = None if root is None else root[1].version  # one of several processes deletes it
            outcome = await self._delete(self._records(subject, root), version=at, also=also)
            if outcome == "nothing":
                mark = import_key(self._face.name, *subject)
                if await self._scope.get(IMPORTS, mark) is not None:
                    await self._scope.commit(Delete(IMPORTS, mark))
                return found or self.erased.total > before  # a subject may consist only of other subjects
            if outcome == "deleted":
                found, version, also = True, None, ()
        raise StorageBusy(f"other processes keep writing to this {subject.kind}; stop them, then erase it again")

    async def _root(self, subject: Reference) -> tuple[Family, Record] | None:
        family = self._face.root(subject.kind)
        record = None if family is None else await self._scope.get(family.name, family.key_of(subject.ref))
        return None if family is None or record is None else (family, record)

    async def _records(
        self, subject: Reference, root: tuple[Family, Record] | None
    ) -> AsyncIterator[tuple[Family, Record]]:
        """Yield the subject's record, then the records that belong to it. Erase the subjects that these lead to."""
        if root is None:
            root = await self._rootless(subject)
        if root is not None:
            yield root
        for family, lookup in self._face.members(subject.kind, whole=self._whole):
            found = lookup(self._scope, family.collection, subject.ref)
            if family.subject not in (None, subject.kind):
                await self._subjects(Reference(str(family.subject), family.ref_of(record)) async for record in found)
                continue
            async for record in found:
                if root is not None and (record.collection, record.key) == (root[0].name, root[1].key):
                    continue
                await self._together([each for each in self._leads_to(family, record) if each not in self._seen])
                yield family, record

    async def _rootless(self, subject: Reference) -> tuple[Family, Record] | None:
        """Return a placeholder for a subject that has logs but no record, as after an interrupted import."""
        family = self._face.root(subject.kind)
        if family is None:
            return None
        key = family.key_of(subject.ref)
        states = [await self._scope.log_state(log, key) for log in family.logs]
        return (family, Record(family.name, key, 0, b"")) if any(state.head for state in states) else None

    def _leads_to(self, family: Family, record: Record) -> Iterable[Reference]:
        return () if self._whole or family.leads_to is None else family.leads_to(record)

    async def _delete(
        self,
        found: AsyncIterator[tuple[Family, Record]],
        *,
        version: int | None = None,
        also: Sequence[Operation] = (),
    ) -> Outcome:
        """Delete these records in commits of BATCH operations, in the order given.

        Return "refused" if the first commit is refused: a record changed since it was read. The next pass reads it
        again.
        """
        outcome: Outcome = "nothing"
        operations: list[Operation] = list(also)
        counts: Counter[str] = Counter()
        async for family, record in found:
            if family.remove is not None:
                await family.remove(self._scope, record)
                self.erased.records[family.title] += 1
                outcome = "deleted"
                continue
            operations += family.operations(record, version=version)
            counts[family.title] += 1
            version = None  # the version is that of the subject's record, which comes first
            if len(operations) >= BATCH:
                if not await self._commit(operations, counts) and outcome == "nothing":
                    return "refused"
                operations, counts, outcome = [], Counter(), "deleted"
        if not counts and (outcome == "nothing" or not operations):
            return outcome
        if not await self._commit(operations, counts) and outcome == "nothing":
            return "refused"
        return "deleted"

    async def _commit(self, operations: list[Operation], counts: Counter[str]) -> bool:
        try:
            await self._scope.commit(*operations)
        except CommitRefused:
            return False
        self._counted(counts)
        return True

    def _counted(self, counts: Counter[str]) -> None:
        self.erased.records += counts
        if self._tell is not None:
            self._tell(self.erased.total)

    # --------------------------------------------------------------------------------------------- count and check

    async def count(self, target: SubjectLocation) -> None:
        """Count the records that `erase` would delete."""
        if target.kind != EVERYTHING:
            await self._count(Reference(target.kind, target.ref))
            return
        self._whole = True
        for family in self._face.families:
            for query in (*family.hidden, *family.queries()):
                async for record in self._scope.scan(query, page=BATCH):
                    if family.subject is None:
                        self.erased.records[family.title] += 1
                    else:
                        await self._count(Reference(family.subject, family.ref_of(record)))

    async def _count(self, subject: Reference) -> None:
        if not self._new(subject):
            return
        root = await self._root(subject)
        if root is not None and self._new(Reference(root[0].name, root[1].key)):
            self.erased.records[root[0].title] += 1
        for family, lookup in self._face.members(subject.kind, whole=self._whole):
            async for record in lookup(self._scope, family.collection, subject.ref):
                if family.subject not in (None, subject.kind):
                    await self._count(Reference(str(family.subject), family.ref_of(record)))
                elif self._new(Reference(family.name, record.key)):
                    self.erased.records[family.title] += 1
                    for reference in self._leads_to(family, record):
                        await self._count(reference)

    def _new(self, reference: Reference) -> bool:
        """Return whether the reference was not counted yet. In a whole partition nothing is found twice."""
        if self._whole:
            return True
        new = reference not in self._seen
        self._seen.add(reference)
        return new

    async def check_idle(self, target: SubjectLocation) -> None:
        """Raise SubjectInUse if the subject has a work item that is not dead."""
        for family in self._face.families:
            if target.kind == EVERYTHING:
                for query in family.queries():
                    async for record in self._scope.scan(query):
                        await self._check_idle(family, record)
            elif family.subject == target.kind:
                record_ = await self._scope.get(family.name, family.key_of(target.ref))
                if record_ is not None:
                    await self._check_idle(family, record_)
            if (lookup := family.found_by.get(target.kind)) is not None:
                async for record in lookup(self._scope, family.collection, target.ref):
                    await self._check_idle(family, record)

    async def _check_idle(self, family: Family, record: Record) -> None:
        for queue in family.queues:
            item = await self._scope.work(queue, record.key)
            if item is not None and item.state != "dead":
                raise SubjectInUse
