"""Removes stored turns (purge, reap, erase) and exports them.

All writes are small commits; an interrupted run is completed by running it again.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from keelbolt.data.erasing import erase_target
from keelbolt.data.families import EVERYTHING, SubjectLocation
from keelbolt.errors import CommitRefused, TurnStorageCorrupt
from keelbolt.kernel import Delete, Kernel, Operation, Query, Record, Scope
from keelbolt.turns.durable.blobs import forgetting
from keelbolt.turns.durable.families import BYTES, DELETED, FACE, FAMILIES, KIND_OF, STREAMS, TURNS, TurnRetention
from keelbolt.turns.durable.records import Stored, read
from keelbolt.turns.durable.scope import PARTITIONS, tenant_scope
from keelbolt.turns.durable.unit import holdings

BATCH = 100
KEPT_SECONDS = 86_400.0  # if a task's process died at the turn's end, the task still asks for the turn


@dataclass(frozen=True, slots=True)
class SweptTurns:
    """Number of removed records, and of released bytes written through conduits."""

    records: int = 0
    blobs: int = 0

    def __add__(self, other: SweptTurns) -> SweptTurns:
        return SweptTurns(self.records + other.records, self.blobs + other.blobs)


async def scopes(kernel: Kernel, tenant: str | None) -> list[Scope]:
    """Return the scope of this tenant, or those of all tenants."""
    if tenant is not None:
        return [tenant_scope(kernel, tenant)]
    return [each async for each in kernel.scopes(prefix=PARTITIONS)]


async def purge(scope: Scope, *, until: int) -> SweptTurns:
    """Remove records deleted before this time, with their bytes, and the data of turns that ended a day earlier."""
    removed = await _purge_deleted(scope, until=until)
    return removed + await _forget_ended(scope, until=until - int(KEPT_SECONDS * 1_000_000))


async def _purge_deleted(scope: Scope, *, until: int) -> SweptTurns:
    removed = SweptTurns()
    for query in _deleted(until):
        removed += await _remove(scope, query)
    return removed


async def _forget_ended(scope: Scope, *, until: int) -> SweptTurns:
    return await _erase_found(scope, "turn", _ended(until))


async def _erase_found(scope: Scope, kind: str, query: Query) -> SweptTurns:
    removed = SweptTurns()
    async for record in scope.scan(query):
        erased = await erase_target(FACE, SubjectLocation(scope, kind, record.key), version=record.version)
        removed += SweptTurns(erased.total)
    return removed


def _deleted(until: int) -> list[Query]:
    return [Query(collection, {"owner": DELETED}, order="seq", until=until) for collection in KIND_OF]


def _ended(until: int) -> Query:
    return Query(TURNS, {"state": "ended"}, order="at", until=until)


def _unused(until: int) -> Query:
    return Query(STREAMS, {"kind": "thread"}, order="at", until=until)


async def retain(kernel: Kernel, policy: TurnRetention, *, dry: bool) -> dict[str, int]:
    """Remove the records of all tenants that the policy no longer keeps; return counts by kind. ``dry`` only counts."""
    now = time.time()
    removed: Counter[str] = Counter()
    await kernel.declare(*FAMILIES)
    async for scope in kernel.scopes(prefix=PARTITIONS):
        for what, age, queries in (
            ("threads", policy.threads, lambda until: [_unused(until)]),
            ("turns", policy.turns, lambda until: [_ended(until)]),
            ("deleted", policy.deleted, _deleted),
        ):
            if age is None:
                continue
            until = int((now - age) * 1_000_000)
            if dry:
                for query in queries(until):
                    removed[what] += (await scope.count(query, cap=1_000_000)).value
            elif what == "threads":
                removed[what] += (await _erase_found(scope, "owner", _unused(until))).records
            elif what == "turns":
                removed[what] += (await _forget_ended(scope, until=until)).records
            else:
                removed[what] += (await _purge_deleted(scope, until=until)).records
    return dict(+removed)


async def reap_everywhere(kernel: Kernel) -> dict[str, int]:
    """Release bytes that no record has referred to within a day, of all tenants."""
    removed = SweptTurns()
    until = int((time.time() - KEPT_SECONDS) * 1_000_000)
    declared = False
    async for scope in kernel.scopes(prefix=PARTITIONS):
        if not declared:
            await kernel.declare(*FAMILIES)
            declared = True
        removed += await reap(scope, until=until)
    return {"staged files": removed.blobs} if removed.blobs else {}


async def reap(scope: Scope, *, until: int) -> SweptTurns:
    """Release bytes written before this time that no record refers to."""
    query = Query(BYTES, {"state": "staged"}, order="at", until=until)
    return await _forget(scope, query)


async def erase(scope: Scope, owner: str | None) -> SweptTurns:
    """Remove all data of this owner, or of the whole tenant; deleted records included."""
    target = SubjectLocation(scope, EVERYTHING) if owner is None else SubjectLocation(scope, "owner", owner)
    erased = (await erase_target(FACE, target)).records
    blobs = erased.pop("files", 0)
    return SweptTurns(erased.total(), blobs)


async def all_owners(scope: Scope) -> AsyncIterator[str]:
    """Yield every owner with stored records: threads, agents, the tenant."""
    async for record in scope.scan(Query(STREAMS)):
        yield record.key


async def export(scope: Scope, owners: Iterable[str] | None) -> AsyncIterator[dict[str, Any]]:
    """Yield every live record as JSON, by owner in storage order; bytes as descriptors."""
    for owner in [each async for each in all_owners(scope)] if owners is None else list(owners):
        for collection, kind in KIND_OF.items():
            async for record in scope.scan(Query(collection, {"owner": owner}, order="seq")):
                yield _exported(read(kind, record))


def _exported(stored: Stored) -> dict[str, Any]:
    return {
        "kind": stored.kind,
        "id": stored.id,
        "owner": stored.owner,
        "turn": stored.turn,
        "seq": stored.seq,
        "created": stored.created,
        "updated": stored.updated,
        "blobs": list(stored.blobs),
        "data": stored.data,
    }


async def _remove(scope: Scope, query: Query) -> SweptTurns:
    removed = SweptTurns()
    while records := (await scope.find(query, limit=BATCH)).records:
        removed += await _removed(scope, records)
    return removed


async def _removed(scope: Scope, records: Iterable[Record]) -> SweptTurns:
    """Remove these records and release their bytes; a record that changed meanwhile is left for the next run."""
    count = SweptTurns()
    for record in records:
        operations: list[Operation] = [Delete(record.collection, record.key, record.version)]
        found: list[Record] = []
        with contextlib.suppress(TurnStorageCorrupt):  # unreadable records can be removed too; their bytes stay held
            stored = read(KIND_OF[record.collection], record)
            entries = await scope.get_many(BYTES, stored.entries) if stored.entries else ()
            found = [entry for entry in entries if entry is not None]
            operations += holdings(record.collection, record.key, before=stored.blobs, after=())
        for entry in found:
            operations += forgetting(entry)
        try:
            await scope.commit(*operations)
        except CommitRefused:
            continue
        count += SweptTurns(1, len(found))
    return count


async def _forget(scope: Scope, query: Query) -> SweptTurns:
    count = 0
    while entries := (await scope.find(query, limit=BATCH)).records:
        for entry in entries:
            try:
                await scope.commit(*forgetting(entry))
            except CommitRefused:  # a record referred to it meanwhile
                continue
            count += 1
    return SweptTurns(blobs=count)
