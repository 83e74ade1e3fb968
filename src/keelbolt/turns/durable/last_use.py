"""Adds the time of last use to owners that were stored before it was recorded."""

from __future__ import annotations

import contextlib

from keelbolt.errors import CommitRefused
from keelbolt.kernel import Kernel, Patch, Query, Scope
from keelbolt.turns.durable.clocks import used
from keelbolt.turns.durable.families import KIND_OF, STREAMS
from keelbolt.turns.durable.records import read
from keelbolt.turns.durable.scope import PARTITIONS


async def note_last_use(kernel: Kernel) -> None:
    """Record the last use of every owner that lacks it; a concurrent write of the owner records it too."""
    async for scope in kernel.scopes(prefix=PARTITIONS):
        async for record in scope.scan(Query(STREAMS)):
            if record.fields.get("at") is None:
                fields = used(record.key, await _last_use(scope, record.key))
                with contextlib.suppress(CommitRefused):
                    await scope.commit(Patch(STREAMS, record.key, fields, record.version))


async def _last_use(scope: Scope, owner: str) -> int:
    """Return the creation time of the owner's newest record; 0 if it has none."""
    last = 0
    for collection, kind in KIND_OF.items():
        query = Query(collection, {"owner": owner}, order="seq", newest_first=True)
        for record in (await scope.find(query, limit=1)).records:
            last = max(last, read(kind, record).created)
    return last
