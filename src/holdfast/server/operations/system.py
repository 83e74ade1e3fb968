"""What the operations API tells about the system."""

from __future__ import annotations

from collections import Counter
from typing import cast

from pydantic_core import to_json

from holdfast.errors import InvalidName, InvalidParamsError
from holdfast.server.health import Health
from holdfast.server.operations.call import OpsCall
from holdfast.storage import Kernel
from holdfast.storage.work import WorkState
from holdfast.tasks.families import QUEUE
from holdfast.tasks.runner import Runner


class SystemOperations:
    """The handlers of the table that are about the system."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._engine = health.engine
        self._kernel: Kernel = health.engine.kernel

    async def system(self, _call: OpsCall) -> bytes:
        """Counts everything, which takes a while on a large store."""
        health = await self._kernel.health()
        stats = await self._kernel.stats()
        runner = self._engine.runner
        return to_json(
            {
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
                "queues": stats.work,
                "workers": stats.workers,
                "holders": await self._holders(),
            }
        )

    async def _holders(self) -> dict[str, int]:
        """Which processes hold how many tasks, of the first thousand that are held."""
        found: Counter[str] = Counter()
        left = 1000
        after = ""
        while left > 0 and (partitions := await self._kernel.partitions(after=after, limit=100)):
            for partition in partitions:
                page = await self._kernel.list_work(partition, QUEUE, state="held", limit=min(left, 500) or 1)
                found.update(item.holder or "" for item in page.items)
                left -= len(page.items)
                if left <= 0:
                    break
            after = partitions[-1]
        return dict(found)

    async def list_work(self, call: OpsCall) -> bytes:
        state = call.text("state", "waiting")
        if state not in ("waiting", "held", "dead"):
            raise InvalidParamsError("state is waiting, held or dead")
        limit = call.number("pageSize", 50, low=1, high=100)
        page = await self._kernel.list_work(
            call.principal.partition,
            QUEUE,
            state=cast("WorkState", state),
            limit=limit,
            cursor=call.query.get("pageToken") or None,
        )
        items = [
            {
                "taskId": item.key,
                "state": item.state,
                "holder": item.holder,
                "attempt": item.attempt,
                "priority": item.priority,
                "readyIn": round(item.ready_in, 3),
                "reason": item.reason,
            }
            for item in page.items
        ]
        return to_json({"work": items, "nextPageToken": page.cursor or ""})

    async def partitions(self, call: OpsCall) -> bytes:
        try:
            found = await self._kernel.partitions(after=call.query.get("after", ""), limit=1000)
        except InvalidName:
            raise InvalidParamsError("after is the name of a partition") from None
        return to_json({"partitions": list(found)})


def _process(runner: Runner) -> dict[str, object]:
    return {
        "name": runner.name,
        "running": len(runner.runs),
        "concurrency": runner.settings.concurrency,
        "leaseSeconds": runner.settings.lease_seconds,
    }
