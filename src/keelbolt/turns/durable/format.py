"""The storage format of turns. This program refuses a newer format, and upgrades an older one."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from pydantic_core import from_json, to_json

from keelbolt.errors import CommitRefused, TurnStorageSchema
from keelbolt.kernel import Insert, Kernel, Patch, Query, Replace, Scope
from keelbolt.turns.durable.clocks import used
from keelbolt.turns.durable.families import FORMAT_PARTITION, FORMATS, KIND_OF, STREAMS
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


FORMAT = 2
UPGRADES: dict[int, Callable[[Kernel], Awaitable[None]]] = {  # from this format to the next; must be idempotent
    1: note_last_use,  # format 2 lists threads by last use
}

_KEY = "format"


async def check_format(kernel: Kernel) -> int:
    """Return the stored format; a new storage gets FORMAT. Raise TurnStorageSchema if it is newer."""
    found = await kernel.get(FORMAT_PARTITION, FORMATS, _KEY)
    if found is None:
        try:
            await kernel.commit(FORMAT_PARTITION, Insert(FORMATS, _KEY, to_json({"v": FORMAT})))
        except CommitRefused:  # another process was first
            return await check_format(kernel)
        return FORMAT
    stored = int(from_json(found.body)["v"])
    if stored > FORMAT:
        raise TurnStorageSchema(
            f"turns are stored in format {stored} by a newer Keelbolt; this version reads formats up to {FORMAT}. "
            "Use the newer version"
        )
    return stored


async def upgrade(kernel: Kernel) -> list[int]:
    """Upgrade an older format step by step; return the formats that were reached."""
    reached = []
    while (stored := await check_format(kernel)) < FORMAT:
        step = UPGRADES.get(stored)
        if step is None:
            raise TurnStorageSchema(f"turns are stored in format {stored}, which can't be upgraded to format {FORMAT}")
        await step(kernel)
        found = await kernel.get(FORMAT_PARTITION, FORMATS, _KEY)
        assert found is not None
        try:
            await kernel.commit(FORMAT_PARTITION, Replace(FORMATS, _KEY, found.version, to_json({"v": stored + 1})))
        except CommitRefused:  # another process took the same step
            continue
        reached.append(stored + 1)
    return reached
