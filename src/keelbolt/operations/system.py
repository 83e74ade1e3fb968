"""The operations API for the system."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import asdict
from typing import Any, cast

from pydantic_core import to_json

from keelbolt.errors import InvalidName, InvalidParamsError, MethodNotFoundError
from keelbolt.kernel import Kernel
from keelbolt.kernel.contract import WorkCounts
from keelbolt.kernel.work import WorkState
from keelbolt.operations.call import OpsCall, sees
from keelbolt.operations.tasks import reason_shown
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.families import QUEUE, WEBHOOKS
from keelbolt.tasks.pushes import push_ids
from keelbolt.tasks.runner import Runner
from keelbolt.tasks.statistics import BUCKET_SECONDS, history

WATCH_SECONDS = 1.0
MAX_PARTITIONS = 1000
QUEUES = (QUEUE, WEBHOOKS)


class CachedValue:
    """A cached value that all callers share. Computing it takes at most a twentieth of the time."""

    def __init__(self, make: Callable[[], Awaitable[bytes]], *, seconds: float = 0.0) -> None:
        self._make, self._seconds = make, seconds
        self._making, self._made, self._until = asyncio.Lock(), b"", 0.0

    async def value(self) -> bytes:
        async with self._making:
            if self._until <= time.monotonic():
                started = time.monotonic()
                self._made = await self._make()
                ended = time.monotonic()
                self._until = ended + max(self._seconds, 20 * (ended - started))
            return self._made


class SystemOperations:
    """The handlers of the routes for the system."""

    def __init__(self, engine: TaskEngine, about: Callable[[], dict[str, Any]], *, authenticates: bool) -> None:
        self._about = about  # information about this process
        self._authenticates = authenticates
        self._engine = engine
        self._kernel: Kernel = engine.kernel
        self._numbers = CachedValue(self._count_numbers, seconds=WATCH_SECONDS / 2)
        self._stored = CachedValue(self._count_stored)

    async def whoami(self, call: OpsCall) -> bytes:
        who = call.principal
        return to_json(
            {
                "owner": who.owner,
                "tenant": who.tenant,
                "roles": sorted(who.roles),
                "operator": call.operator,
                "allTenants": call.reach == "all",
                "authentication": self._authenticates,
            }
        )

    async def system(self, _call: OpsCall) -> bytes:
        health = await self._kernel.health()
        counts = await self._kernel.count_work(QUEUES)
        runner = self._engine.runner
        return to_json(
            {
                "engine": health.engine,
                "durability": health.durability,
                "reads": health.reads,
                "writes": health.writes,
                "detail": health.detail,
                **self._about(),
                "process": None if runner is None else _process(runner),
                "retention": self._retention(),
                "queues": counts.work,
                "workers": _alive(counts),
                "holders": counts.holders,
                "processes": _processes(counts),
            }
        )

    async def system_history(self, call: OpsCall) -> bytes:
        buckets = await history(self._kernel, hours=call.number("hours", 6, low=1, high=48))
        return to_json({"bucketSeconds": BUCKET_SECONDS, "buckets": buckets})

    def _retention(self) -> dict[str, float | None] | None:
        """Return the limits of all policies, by name."""
        policies = map(asdict, self._engine.retention)
        return {name: limit for policy in policies for name, limit in policy.items()} or None

    async def system_storage(self, _call: OpsCall) -> bytes:
        return await self._stored.value()

    async def _count_stored(self) -> bytes:
        stats = await self._kernel.stats()
        return to_json(
            {
                "partitions": stats.partitions,
                "records": stats.records,
                "streams": stats.streams,
                "entries": stats.entries,
                "blobs": stats.blobs,
                "blobBytes": stats.blob_bytes,
                "bytes": stats.bytes,
                "engine": stats.engine,
            }
        )

    async def watch_system(self, _call: OpsCall) -> AsyncGenerator[tuple[bytes, int | None], None]:
        sent = b""
        while not self._engine.events.closing:
            counts = await self._numbers.value()
            if counts != sent:
                yield counts, None
                sent = counts
            await asyncio.sleep(WATCH_SECONDS)

    async def _count_numbers(self) -> bytes:
        counts, runner = await self._kernel.count_work(QUEUES), self._engine.runner
        process = None if runner is None else _process(runner)
        return to_json({"queues": counts.work, "workers": _alive(counts), "process": process})

    async def list_work(self, call: OpsCall) -> bytes:
        state = call.text("state", "waiting")
        if state not in ("waiting", "held", "dead"):
            raise InvalidParamsError("state must be waiting, held or dead")
        queue = call.text("queue", QUEUE)
        if queue not in QUEUES:
            raise InvalidParamsError(f"queue must be {' or '.join(QUEUES)}")
        limit = call.number("pageSize", 50, low=1, high=100)
        page = await self._engine.tasks.scope(call.principal).list_work(
            queue,
            state=cast("WorkState", state),
            limit=limit,
            cursor=call.query.get("pageToken") or None,
        )
        items = [
            {
                **_ids(queue, item.key),
                "state": item.state,
                "holder": item.holder,
                "attempt": item.attempt,
                "priority": item.priority,
                "readyIn": round(item.ready_in, 3),
                "reason": reason_shown(call, item.reason) if queue == QUEUE else item.reason,
            }
            for item in page.items
        ]
        return to_json({"work": items, "nextPageToken": page.cursor or ""})

    async def partitions(self, call: OpsCall) -> bytes:
        """Return the partitions that an operator may act in. Raises MethodNotFoundError for other callers."""
        if not call.operator:
            raise MethodNotFoundError("there is nothing at this path")
        after, found = call.query.get("after", ""), list[str]()
        try:
            while len(found) < MAX_PARTITIONS and (page := await self._kernel.partitions(after=after, limit=1000)):
                found += [name for name in page if sees(call.caller, name, call.reach)]
                after = page[-1]
        except InvalidName:
            raise InvalidParamsError("after must be the name of a partition") from None
        return to_json({"partitions": found[:MAX_PARTITIONS]})


def _alive(counts: WorkCounts) -> int:
    return sum(left > 0 for left in counts.workers.values())


def _processes(counts: WorkCounts) -> list[dict[str, object]]:
    """Return the processes that have leases, live ones first. The name of a lease begins with host and pid."""
    leases: defaultdict[str, list[str]] = defaultdict(list)
    for worker in counts.workers:
        leases[worker.rpartition(":")[0]].append(worker)
    found: list[dict[str, object]] = [
        {
            "name": name,
            "alive": (left := max(counts.workers[worker] for worker in workers)) > 0,
            "leaseLeftSeconds": round(left, 3),
            "holds": sum(counts.holders.get(worker, 0) for worker in workers),
        }
        for name, workers in sorted(leases.items())
    ]
    return sorted(found, key=lambda process: not process["alive"])


def _process(runner: Runner) -> dict[str, object]:
    return {
        "name": runner.name,
        "running": len(runner.runs),
        "concurrency": runner.settings.concurrency,
        "leaseSeconds": runner.settings.lease_seconds,
        "ended": runner.pulse.ended,
        "failed": runner.pulse.failed,
        "p50Seconds": runner.pulse.quantile(0.5),
        "p95Seconds": runner.pulse.quantile(0.95),
    }


def _ids(queue: str, key: str) -> dict[str, str]:
    """Return the ids in the key of an item of this queue."""
    if queue == QUEUE:
        return {"taskId": key}
    task_id, config_id = push_ids(key)
    return {"taskId": task_id, "configId": config_id}
