"""Artifacts in a partition of the kernel: put, find, and remove to make room.

Every change is one commit of the artifact, its blob and the totals of its session and trace, so that concurrent writers
never exceed a limit: one of their commits is refused and retried.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from keelbolt.errors import ArtifactLimitExceeded, BlobNotFound, CommitRefused, StateErased, StorageBusy
from keelbolt.kernel.blobs import BlobReader, BlobSource
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.records import Delete, Insert, Patch, Query, Record, Replace, Version
from keelbolt.kernel.scope import Scope
from keelbolt.state.artifacts.record import (
    NEVER,
    ArtifactRecord,
    Group,
    Owner,
    Retention,
    Total,
    artifact_ids,
    check_size,
    excess,
    key,
    limit,
)
from keelbolt.state.engine.writes import ErasureGuard, is_tombstone
from keelbolt.state.families import ARTIFACT_TOTALS, ARTIFACTS
from keelbolt.state.names import name
from keelbolt.state.types import ArtifactRetentionConfig

ATTEMPTS = 100
PAGE = 200
BATCH = 100  # artifacts that one commit adds, and that it removes


class ArtifactRepository:
    """The artifacts of one partition. ``lives`` returns the `ErasureGuard` of a session in this process."""

    def __init__(
        self, room: Scope, retention: Retention, order: WriteOrder, lives: Callable[[str], ErasureGuard] | None = None
    ) -> None:
        self._room = room
        self._lives = lives
        self._retention = retention
        self._order = order
        self._now = order.now

    # ---------------------------------------------------------------------------------------------------------- put

    async def put(
        self,
        source: BlobSource,
        *,
        mime_type: str | None,
        filename: str | None,
        namespace: str | None,
        scope: Any | None,
        meta: dict[str, Any],
    ) -> ArtifactRecord:
        """Store these bytes. Raise ArtifactTooLarge or ArtifactLimitExceeded."""
        owner = Owner.of(scope)
        if isinstance(source, str):
            source = source.encode()
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._check(memoryview(source).nbytes, owner)
        elif isinstance(source, AsyncIterator):
            source = self._measured(source, owner)
        blob = await self._room.stage_blob(source)
        self._check(blob.size, owner)
        now = self._now()
        kept = ArtifactRecord(
            id="",
            sha256=blob.digest,
            size=blob.size,
            owner=owner,
            scoped=scope is not None,
            namespace=namespace,
            mime_type=mime_type,
            filename=filename,
            source=meta,
            created=now,
            rank=0,
            expires=NEVER,
        )
        kept = await self._keep_with_others(kept)
        if self._order.sweeping():
            await self.sweep(max_artifacts=PAGE)
        return kept

    async def restore(self, kept: ArtifactRecord) -> bool:
        """Store an artifact from another store unchanged and return whether it was missing. Its blob must be staged."""
        for _ in range(ATTEMPTS):
            if await self._find(kept.id) is not None:
                return False
            try:
                await self._change(added=[kept])
            except CommitRefused:
                continue
            return True
        raise StorageBusy

    async def _keep_with_others(self, wanted: ArtifactRecord) -> ArtifactRecord:
        """Store the artifact in one commit with others that were put into the same session meanwhile.

        The total of a session is one record: with a commit for each artifact, the last of many would wait for all
        others.
        """
        session = wanted.owner.session
        waiting = self._order.waiting(session)
        done: asyncio.Future[ArtifactRecord] = asyncio.get_running_loop().create_future()
        waiting.append((wanted, done))
        async with self._order.lock(session):
            while not done.done():
                batch = [waiting.popleft() for _ in range(min(BATCH, len(waiting)))]
                try:
                    await self._keep_batch([(item, future) for item, future in batch if not future.done()])
                except asyncio.CancelledError:  # the next caller that gets the lock continues with them
                    waiting.extendleft(reversed([(item, future) for item, future in batch if not future.done()]))
                    raise
        return done.result()

    async def _keep_batch(self, batch: Sequence[tuple[ArtifactRecord, asyncio.Future[ArtifactRecord]]]) -> None:
        """Store all of them in one commit; if that fails, store each separately."""
        kept: list[ArtifactRecord] = []
        try:
            kept = await self._keep([item for item, _ in batch])
        except Exception:  # noqa: BLE001  (the separate commits below find the artifact that failed)
            for item, future in batch:
                try:
                    (alone,) = await self._keep([item])
                except Exception as error:  # noqa: BLE001  (raised to the caller of put)
                    _settle(future, error)
                else:
                    _settle(future, alone)
        else:
            for (_, future), one in zip(batch, kept, strict=True):
                _settle(future, one)

    async def _keep(self, wanted: Sequence[ArtifactRecord]) -> list[ArtifactRecord]:
        """Store these artifacts of one session."""
        session_id = wanted[0].owner.session_id
        life = self._lives(session_id) if self._lives is not None and session_id is not None else None
        for _ in range(ATTEMPTS):
            try:
                placed = await asyncio.gather(*map(self._place, wanted))
                if expired := {kept.id: kept for _, kept in placed if kept is not None}:
                    await self._change(removed=list(expired.values()))
                found = [kept for kept, _ in placed]
                by_id = {kept.id: kept for kept in reversed(found)}  # equal bytes are one artifact
                added = [kept for kept in by_id.values() if not kept.version]
                used = [
                    Patch(ARTIFACTS, key(kept.id), {"rank": kept.rank, "expires": kept.expires}, version=kept.version)
                    for kept in by_id.values()
                    if kept.version
                ]
                victims = await self._victims(added, by_id)
                while len(victims) > BATCH:  # a commit has a limited number of operations
                    await self._change(removed=victims[:BATCH])
                    victims = victims[BATCH:]
                checks = (life.check,) if life is not None else ()
                await self._change(added=added, removed=victims, used=[*checks, *used])
            except CommitRefused as refusal:
                if is_tombstone(refusal) and (life is None or not life.goes_on(refusal)):
                    raise StateErased("put_artifact", refusal) from refusal
                continue  # another writer committed first; retry
            if life is not None:
                life.written()
            return [by_id[kept.id] for kept in found]
        raise StorageBusy

    async def _place(self, wanted: ArtifactRecord) -> tuple[ArtifactRecord, ArtifactRecord | None]:
        """Return the artifact with its id, and with its record's version if the same artifact is already stored.

        The second value is an expired artifact with this id, which must be removed first.
        """
        for artifact_id in artifact_ids(wanted.sha256, wanted.namespace, wanted.owner):
            there = await self._find(artifact_id)
            if there is None or there.same(wanted):
                expired = None
                if there is not None and there.expires <= self._now():
                    there, expired = None, there
                kept = there or replace(wanted, id=artifact_id)
                ttl = self._retention.ttl_seconds
                lasting = kept.pinned or ttl <= 0
                rank = self._order.rank() + (NEVER if kept.pinned else 0)
                expires = NEVER if lasting else self._now() + ttl * 1_000_000
                return replace(kept, rank=rank, expires=expires), expired
        raise StorageBusy  # can't happen: three different hashes are all taken

    def _check(self, size: int, owner: Owner) -> None:
        groups: tuple[Group, ...] = ("session",) if owner.trace is None else ("session", "trace")
        check_size(self._retention, size, groups)

    async def _measured(self, source: AsyncIterator[bytes], owner: Owner) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in source:
            size += len(chunk)
            self._check(size, owner)
            yield chunk

    # --------------------------------------------------------------------------------------------------- make room

    async def _victims(self, added: Sequence[ArtifactRecord], spared: Collection[str]) -> list[ArtifactRecord]:
        """Return the artifacts to remove so that the new ones fit. Raise ArtifactLimitExceeded if none suffice."""
        needed = await self._excess(added)
        if any(needed.values()) and await self.sweep():  # remove expired artifacts first
            needed = await self._excess(added)
        victims: dict[str, ArtifactRecord] = {}
        for (group, name_), need in needed.items():
            for victim in victims.values():
                if victim.groups.get(group) == name_:
                    need -= victim.total  # noqa: PLW2901
            if need:
                await self._choose(group, name_, need, victims, spared)
        return list(victims.values())

    async def _excess(self, added: Sequence[ArtifactRecord]) -> dict[tuple[Group, str], Total]:
        """Return by how much each session and trace would exceed its limits with these artifacts."""
        sums: dict[tuple[Group, str], Total] = {}
        for kept in added:
            for place in kept.groups.items():
                sums[place] = sums.get(place, Total()) + kept.total
        held = await self._totals(name_ for _, name_ in sums) if sums else {}
        return {
            (group, name_): excess(held[name_][1] + total, limit(self._retention, group))
            for (group, name_), total in sums.items()
        }

    async def _choose(
        self, group: Group, name_: str, need: Total, victims: dict[str, ArtifactRecord], spared: Collection[str]
    ) -> None:
        if self._retention.cleanup_strategy != "none":
            query = Query(ARTIFACTS, {f"{group}_group": name_}, order="rank", until=NEVER)
            async for record in self._room.scan(query):
                kept = ArtifactRecord.of(record)
                if kept.id not in victims and kept.id not in spared:
                    victims[kept.id] = kept
                    need -= kept.total
                    if not need:
                        return
        allowed = limit(self._retention, group)
        raise ArtifactLimitExceeded(
            f"the limit of this {group} is reached: {allowed.count} artifacts, {allowed.size} bytes"
        )

    async def sweep(self, *, max_artifacts: int = 1000) -> int:
        """Remove expired artifacts, the longest expired first, and return their number."""
        gone = 0
        while gone < max_artifacts:
            page = await self._room.find(Query(ARTIFACTS, order="expires", until=self._now() + 1), limit=20)
            if not page.records:
                break
            try:
                await self._change(removed=[ArtifactRecord.of(record) for record in page.records])
                gone += len(page.records)
            except CommitRefused:
                continue
        return gone

    # --------------------------------------------------------------------------------------------------------- read

    async def find(self, artifact_id: str) -> ArtifactRecord | None:
        """Return the artifact, unless it has expired."""
        kept = await self._find(artifact_id)
        return kept if kept is not None and kept.expires > self._now() else None

    async def open(self, kept: ArtifactRecord) -> BlobReader | None:
        """Return a reader of its bytes. Reading counts as use."""
        if self._retention.cleanup_strategy == "lru" and not kept.pinned:
            self._touch(kept)
        try:
            return await self._room.open_blob(kept.sha256)
        except BlobNotFound:
            return None  # deleted meanwhile

    async def list(self, wanted: Owner) -> list[ArtifactRecord]:
        """Return the artifacts of this owner in order of creation."""
        query = Query(ARTIFACTS, order="expires")
        if wanted.session_id is not None:
            query = Query(ARTIFACTS, {"session": name(wanted.session_id)}, order="rank")
        now = self._now()
        found = [
            kept async for record in self._room.scan(query) if (kept := ArtifactRecord.of(record)).owner.matches(wanted)
        ]
        return sorted((kept for kept in found if kept.expires > now), key=lambda kept: (kept.created, kept.id))

    async def delete(self, artifact_id: str, *checks: Version) -> bool:
        """Delete the artifact and return whether it existed. If a check fails, return False."""
        for _ in range(ATTEMPTS):
            kept = await self._find(artifact_id)
            if kept is None:
                return False
            try:
                await self._change(removed=[kept], used=checks)
            except CommitRefused as refusal:
                if isinstance(refusal.check, Version):
                    return False
                continue
            return kept.expires > self._now()
        raise StorageBusy

    def _touch(self, kept: ArtifactRecord) -> None:
        """Record the use in the background, without delaying the reader."""
        touched = asyncio.ensure_future(self._room.commit(Patch(ARTIFACTS, key(kept.id), {"rank": self._order.rank()})))
        touched.add_done_callback(lambda done: done.cancelled() or done.exception())

    # -------------------------------------------------------------------------------------------------------- store

    async def _change(
        self,
        *,
        added: Sequence[ArtifactRecord] = (),
        removed: Sequence[ArtifactRecord] = (),
        used: Sequence[Operation] = (),
    ) -> None:
        """Apply the change in one commit. Raise CommitRefused if an affected record changed meanwhile."""
        changes: dict[str, Total] = {}
        for sign, kept in itertools.chain(((1, kept) for kept in added), ((-1, kept) for kept in removed)):
            for group in kept.groups.values():
                before = changes.get(group, Total())
                changes[group] = before + kept.total if sign == 1 else before - kept.total
        held = await self._totals(changes) if changes else {}
        operations: list[Operation] = [*used]
        for kept in removed:
            operations += [Delete(ARTIFACTS, key(kept.id), version=kept.version), kept.detach()]
        for kept in added:
            operations += kept.insert()
        for group, change in changes.items():
            version, total = held[group]
            operations.append(_total(group, version, total + change))
        await self._room.commit(*operations)

    async def _totals(self, groups: Iterable[str]) -> dict[str, tuple[int, Total]]:
        names = list(groups)
        records = await self._room.get_many(ARTIFACT_TOTALS, names)
        return {
            group: (0, Total()) if record is None else (record.version, Total.load(record.body))
            for group, record in zip(names, records, strict=True)
        }

    async def _find(self, artifact_id: str) -> ArtifactRecord | None:
        record = await self._room.get(ARTIFACTS, key(artifact_id))
        return None if record is None else ArtifactRecord.of(record)


async def sweep_artifacts(room: Scope) -> int:
    """Remove all expired artifacts and return their number."""
    shelf, gone = ArtifactRepository(room, ArtifactRetentionConfig(), WriteOrder(time.time)), 0
    while swept := await shelf.sweep():
        gone += swept
    return gone


async def remove_artifact(room: Scope, record: Record) -> None:
    """Remove the artifact of this record with its blob and update the totals of its session and trace."""
    await ArtifactRepository(room, ArtifactRetentionConfig(), WriteOrder(time.time)).delete(
        ArtifactRecord.of(record).id
    )


async def restore_artifact(room: Scope, record: Record) -> None:
    """Store the artifact of this record, whose blob is staged, and update the totals of its session and trace."""
    await ArtifactRepository(room, ArtifactRetentionConfig(), WriteOrder(time.time)).restore(ArtifactRecord.of(record))


def _total(group: str, version: int, total: Total) -> Insert | Replace | Delete:
    if not version:
        return Insert(ARTIFACT_TOTALS, group, total.dump())
    if not total:
        return Delete(ARTIFACT_TOTALS, group, version=version)
    return Replace(ARTIFACT_TOTALS, group, version, total.dump())


def _settle(future: asyncio.Future[ArtifactRecord], result: ArtifactRecord | BaseException) -> None:
    if future.done():  # the caller was cancelled
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


# ---------------------------------------------------------------------------------------------------------------- order


SWEEP_SECONDS = 60.0  # minimum time between the sweeps that puts trigger in a process


class WriteOrder:
    """Shared by all writers of one artifact store. ``clock`` is Unix time in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rank = 0
        self._swept = self.now()
        self._waiting: WeakValueDictionary[str, deque[Any]] = WeakValueDictionary()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def now(self) -> int:
        """Return the time in microseconds since 1970."""
        return int(self._clock() * 1_000_000)

    def rank(self) -> int:
        """Return the time in microseconds since 1970, strictly increasing."""
        self._rank = max(self.now(), self._rank + 1)
        return self._rank

    def sweeping(self) -> bool:
        """Return whether a sweep is due; if so, start the next period."""
        due = not 0 <= self.now() - self._swept < SWEEP_SECONDS * 1_000_000  # also if the clock was set back
        if due:
            self._swept = self.now()
        return due

    def lock(self, group: str) -> asyncio.Lock:
        """Return the session's lock. It serializes puts, so that their commits do not refuse each other."""
        return self._locks.setdefault(group, asyncio.Lock())

    def waiting(self, group: str) -> deque[Any]:
        """Return the queue of puts that wait for the lock of this session and will share one commit."""
        return self._waiting.setdefault(group, deque())
