"""What ends the life of stored turns: purge, reap and erase; and what is kept of it: export.

Everything goes in small commits, and what was interrupted is finished by doing it again.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from keelbolt.data.erasing import erase_target
from keelbolt.data.families import EVERYTHING, Target
from keelbolt.errors import CommitRefused, TurnStorageCorrupt
from keelbolt.storage import Delete, Kernel, Operation, Query, Record, Scope
from keelbolt.turns.durable.blobs import forgetting
from keelbolt.turns.durable.families import BYTES, DELETED, FACE, FAMILIES, KIND_OF, STREAMS, TURNS, TurnRetention
from keelbolt.turns.durable.records import Stored, read
from keelbolt.turns.durable.scope import PARTITIONS, tenant_scope
from keelbolt.turns.durable.unit import holdings

BATCH = 100
KEPT_SECONDS = 86_400.0  # after its end a task may still ask for a turn, if its process died in that moment


@dataclass(frozen=True, slots=True)
class Removed:
    """How many records were removed, and how many bytes written through conduits were let go."""

    records: int = 0
    blobs: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.records + other.records, self.blobs + other.blobs)


async def scopes(kernel: Kernel, tenant: str | None) -> list[Scope]:
    """The scope of this tenant, or those of all."""
    if tenant is not None:
        return [tenant_scope(kernel, tenant)]
    return [each async for each in kernel.scopes(prefix=PARTITIONS)]


async def purge(scope: Scope, *, until: int) -> Removed:
    """Remove what was deleted before this time, with its bytes, and what is known of turns that ended a day before."""
    removed = await _purge_deleted(scope, until=until)
    return removed + await _forget_ended(scope, until=until - int(KEPT_SECONDS * 1_000_000))


async def _purge_deleted(scope: Scope, *, until: int) -> Removed:
    removed = Removed()
    for query in _deleted(until):
        removed += await _remove(scope, query)
    return removed


async def _forget_ended(scope: Scope, *, until: int) -> Removed:
    return await _erase_found(scope, "turn", _ended(until))


async def _erase_found(scope: Scope, kind: str, query: Query) -> Removed:
    removed = Removed()
    async for record in scope.scan(query):
        erased = await erase_target(FACE, Target(scope, kind, record.key), version=record.version)
        removed += Removed(erased.total)
    return removed


def _deleted(until: int) -> list[Query]:
    return [Query(collection, {"owner": DELETED}, order="seq", until=until) for collection in KIND_OF]


def _ended(until: int) -> Query:
    return Query(TURNS, {"state": "ended"}, order="at", until=until)


def _unused(until: int) -> Query:
    return Query(STREAMS, {"kind": "thread"}, order="at", until=until)


async def retain(kernel: Kernel, policy: TurnRetention, *, dry: bool) -> dict[str, int]:
    """Remove what the policy lets go, of all tenants, and return how many records of what; ``dry`` only counts."""
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
    """Let go of bytes that no record took within a day, of all tenants."""
    removed = Removed()
    until = int((time.time() - KEPT_SECONDS) * 1_000_000)
    declared = False
    async for scope in kernel.scopes(prefix=PARTITIONS):
        if not declared:
            await kernel.declare(*FAMILIES)
            declared = True
        removed += await reap(scope, until=until)
    return {"staged files": removed.blobs} if removed.blobs else {}


async def reap(scope: Scope, *, until: int) -> Removed:
    """Let go of bytes that were written before this time and that no record took."""
    query = Query(BYTES, {"state": "staged"}, order="at", until=until)
    return await _forget(scope, query)


async def erase(scope: Scope, owner: str | None) -> Removed:
    """Remove everything of this owner, or of the whole tenant; deleted records included."""
    target = Target(scope, EVERYTHING) if owner is None else Target(scope, "owner", owner)
    erased = (await erase_target(FACE, target)).records
    blobs = erased.pop("files", 0)
    return Removed(erased.total(), blobs)


async def all_owners(scope: Scope) -> AsyncIterator[str]:
    """Whoever has stored something: threads, agents, the tenant."""
    async for record in scope.scan(Query(STREAMS)):
        yield record.key


async def export(scope: Scope, owners: Iterable[str] | None) -> AsyncIterator[dict[str, Any]]:
    """Every living record as JSON, owner by owner in the order of storing; bytes by their descriptors."""
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


async def _remove(scope: Scope, query: Query) -> Removed:
    removed = Removed()
    while records := (await scope.find(query, limit=BATCH)).records:
        removed += await _removed(scope, records)
    return removed


async def _removed(scope: Scope, records: Iterable[Record]) -> Removed:
    """Remove these and what they hold; one that changed meanwhile is left for the next look."""
    count = Removed()
    for record in records:
        operations: list[Operation] = [Delete(record.collection, record.key, record.version)]
        found: list[Record] = []
        with contextlib.suppress(TurnStorageCorrupt):  # what can't be read can be removed; its bytes stay held
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
        count += Removed(1, len(found))
    return count


async def _forget(scope: Scope, query: Query) -> Removed:
    count = 0
    while entries := (await scope.find(query, limit=BATCH)).records:
        for entry in entries:
            try:
                await scope.commit(*forgetting(entry))
            except CommitRefused:  # a record took it meanwhile
                continue
            count += 1
    return Removed(blobs=count)
