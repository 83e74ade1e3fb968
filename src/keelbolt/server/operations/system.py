"""What the operations API tells about the system."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import asdict
from itertools import product
from typing import cast

from pydantic_core import to_json

from keelbolt import __version__
from keelbolt.errors import InvalidName, InvalidParamsError, MethodNotFoundError
from keelbolt.server.health import Health
from keelbolt.server.operations.call import OpsCall, sees
from keelbolt.server.operations.tasks import reason_shown
from keelbolt.storage import Kernel
from keelbolt.storage.work import WorkState
from keelbolt.tasks.families import QUEUE, WEBHOOKS
from keelbolt.tasks.pushes import push_ids
from keelbolt.tasks.runner import Runner

WATCH_SECONDS = 1.0
MAX_PARTITIONS = 1000
QUEUES = (QUEUE, WEBHOOKS)


class SystemOperations:
    """The handlers of the table that are about the system."""

    def __init__(self, health: Health, *, authenticates: bool) -> None:
        self._health = health
        self._authenticates = authenticates
        self._engine = health.engine
        self._kernel: Kernel = health.engine.kernel
        self._counting, self._counted, self._counted_until = asyncio.Lock(), b"", 0.0

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
        """Counts everything, which takes a while on a large store."""
        health = await self._kernel.health()
        stats = await self._kernel.stats()
        runner = self._engine.runner
        return to_json(
            {
                "version": __version__,
                "engine": health.engine,
                "durability": health.durability,
                "reads": health.reads,
                "writes": health.writes,
                "detail": health.detail,
                "uptimeSeconds": self._health.uptime(),
                "openStreams": self._health.streams.open,
                "process": None if runner is None else _process(runner),
                "storage": {
                    "partitions": stats.partitions,
                    "records": stats.records,
                    "streams": stats.streams,
                    "entries": stats.entries,
                    "blobs": stats.blobs,
                    "blobBytes": stats.blob_bytes,
                    "bytes": stats.bytes,
                    "engine": stats.engine,
                },
                "retention": None if self._engine.retention is None else asdict(self._engine.retention),
                "queues": stats.work,
                "workers": stats.workers,
                "holders": await self._holders(),
            }
        )

    async def _holders(self) -> dict[str, int]:
        """Which processes hold how many tasks and webhooks, of the first thousand that are held."""
        found: Counter[str] = Counter()
        left = 1000
        after = ""
        while left > 0 and (partitions := await self._kernel.partitions(after=after, limit=100)):
            for partition, queue in product(partitions, QUEUES):
                page = await self._kernel.list_work(partition, queue, state="held", limit=min(left, 500) or 1)
                found.update(item.holder or "" for item in page.items)
                left -= len(page.items)
                if left <= 0:
                    break
            after = partitions[-1]
        return dict(found)

    async def watch_system(self, _call: OpsCall) -> AsyncGenerator[tuple[bytes, int | None], None]:
        sent = b""
        while not self._engine.events.closing:
            counts = await self._counts()
            if counts != sent:
                yield counts, None
                sent = counts
            await asyncio.sleep(WATCH_SECONDS)

    async def _counts(self) -> bytes:
        """Counting takes a while on a large store: all who watch share it, and it takes a twentieth of the time."""
        async with self._counting:
            if self._counted_until <= time.monotonic():
                started = time.monotonic()
                stats, runner = await self._kernel.stats(), self._engine.runner
                process = None if runner is None else _process(runner)
                self._counted = to_json({"queues": stats.work, "workers": stats.workers, "process": process})
                ended = time.monotonic()
                self._counted_until = ended + max(WATCH_SECONDS / 2, 20 * (ended - started))
            return self._counted

    async def list_work(self, call: OpsCall) -> bytes:
        state = call.text("state", "waiting")
        if state not in ("waiting", "held", "dead"):
            raise InvalidParamsError("state is waiting, held or dead")
        queue = call.text("queue", QUEUE)
        if queue not in QUEUES:
            raise InvalidParamsError(f"queue is {' or '.join(QUEUES)}")
        limit = call.number("pageSize", 50, low=1, high=100)
        page = await self._kernel.list_work(
            call.principal.partition,
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
        """The partitions that an operator may act in. Raises MethodNotFoundError for other callers."""
        if not call.operator:
            raise MethodNotFoundError("there is nothing at this path")
        after, found = call.query.get("after", ""), list[str]()
        try:
            while len(found) < MAX_PARTITIONS and (page := await self._kernel.partitions(after=after, limit=1000)):
                found += [name for name in page if sees(call.caller, name, call.reach)]
                after = page[-1]
        except InvalidName:
            raise InvalidParamsError("after is the name of a partition") from None
        return to_json({"partitions": found[:MAX_PARTITIONS]})


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
    """What an item of this queue is about."""
    if queue == QUEUE:
        return {"taskId": key}
    task_id, config_id = push_ids(key)
    return {"taskId": task_id, "configId": config_id}
