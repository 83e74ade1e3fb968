"""What ends the life of what is known about turns: how far they are, their gates, and which task they belong to."""

from __future__ import annotations

from collections.abc import Iterable

from keelbolt.storage import Delete, Drop, Kernel, Operation, Query, Record
from keelbolt.turns.durable.families import GATE_LOG, GATES, TASK_TURNS, TURNS

BATCH = 100
KEPT_SECONDS = 86_400.0  # after its end a turn may still be asked for: by a task whose process died in that moment


async def forget_ended(kernel: Kernel, partition: str, *, until: int) -> int:
    """Forget turns that ended before this time, with their gates; answers how many records that were."""
    return await _forget(kernel, partition, [Query(TURNS, {"state": "ended"}, order="at", until=until)])


async def forget_all(kernel: Kernel, partition: str) -> int:
    """Forget every turn of the tenant, and every gate."""
    queries = [Query(TURNS, {"state": state}, order="at") for state in ("running", "ended")]
    queries += [Query(GATES, {"state": state}, order="at") for state in ("open", "settled")]
    return await _forget(kernel, partition, queries)


async def forget_of(kernel: Kernel, partition: str, owner: str) -> int:
    """Forget the turns and gates of one thread."""
    queries = [Query(TURNS, {"owner": owner}, order="at"), Query(GATES, {"owner": owner}, order="at")]
    return await _forget(kernel, partition, [*queries, Query(TASK_TURNS, {"owner": owner})])


async def _forget(kernel: Kernel, partition: str, queries: Iterable[Query]) -> int:
    count = 0
    for query in queries:
        while records := (await kernel.find(partition, query, limit=BATCH)).records:
            for record in records:
                count += await _forget_one(kernel, partition, record)
    return count


async def _forget_one(kernel: Kernel, partition: str, record: Record) -> int:
    count = 0
    if record.collection == TURNS:
        for query in (Query(GATES, {"turn": record.key}, order="at"), Query(TASK_TURNS, {"turn": record.key})):
            count += await _forget(kernel, partition, [query])
    operations: list[Operation] = [Delete(record.collection, record.key)]
    if record.collection == GATES:
        operations.append(Drop(GATE_LOG, record.key))
    await kernel.commit(partition, *operations)
    return count + 1
