"""When each owner last stored something, for those that were stored before that was noted."""

from __future__ import annotations

import contextlib

from keelbolt.errors import CommitRefused
from keelbolt.storage import Kernel, Patch, Query, Scope
from keelbolt.turns.durable.clocks import used
from keelbolt.turns.durable.families import KIND_OF, STREAMS
from keelbolt.turns.durable.records import read
from keelbolt.turns.durable.scope import PARTITIONS


async def note_last_use(kernel: Kernel) -> None:
    """Note it for every owner that lacks it; whoever stores something meanwhile notes it too."""
    async for scope in kernel.scopes(prefix=PARTITIONS):
        async for record in scope.scan(Query(STREAMS)):
            if record.fields.get("at") is None:
                fields = used(record.key, await _last_use(scope, record.key))
                with contextlib.suppress(CommitRefused):
                    await scope.commit(Patch(STREAMS, record.key, fields, record.version))


async def _last_use(scope: Scope, owner: str) -> int:
    """When the newest of what it has was stored; 0 if it has nothing any more."""
    last = 0
    for collection, kind in KIND_OF.items():
        query = Query(collection, {"owner": owner}, order="seq", newest_first=True)
        for record in (await scope.find(query, limit=1)).records:
            last = max(last, read(kind, record).created)
    return last
