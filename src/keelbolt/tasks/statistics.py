"""Statistics of the last two days, in the store: throughput, durations and queue, in buckets of five minutes.

Each process that runs tasks has one record per bucket, which it rewrites once a minute in the background. So a store
holds at most 576 small records per process; they expire by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from keelbolt.data.erasing import PARTITION
from keelbolt.errors import KeelboltError
from keelbolt.kernel import Collection, Index, Kernel, Put, Query
from keelbolt.leases import cancelled
from keelbolt.observability.metrics import bucket_quantile
from keelbolt.tasks.families import QUEUE
from keelbolt.tasks.runner import Runner

logger = logging.getLogger("keelbolt.tasks")

VITALS = "system_vitals"  # start of the bucket/process → its numbers for these five minutes
COLLECTION = Collection(VITALS, fields={"at": int}, indexes=(Index("at", order="at"),), expiring=True)

BUCKET_SECONDS = 300
EVERY_SECONDS = 60.0
KEPT_SECONDS = 48 * 3600.0
STOP_SECONDS = 2.0


class StatisticsWriter:
    """Writes the records of this process."""

    def __init__(self, kernel: Kernel, runner: Runner) -> None:
        self._kernel = kernel
        self._runner = runner
        self._name = runner.name  # a process that loses its lease gets another name
        self._loop: asyncio.Task[None] | None = None
        self._bucket = 0
        self._base = self._last = self._counted()

    def start(self) -> None:
        self._loop = asyncio.create_task(self._run(), name="vitals")

    async def stop(self) -> None:
        """Write the rest, unless this process has not written anything yet."""
        if self._loop is not None:
            await cancelled(self._loop)
            self._loop = None
            with contextlib.suppress(KeelboltError, TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    if self._bucket:
                        await self._write()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS - time.time() % EVERY_SECONDS)
            try:
                await self._write()
            except KeelboltError:
                continue  # the next record of the bucket includes these numbers
            except Exception:
                logger.exception("the statistics of this minute could not be written")

    async def _write(self) -> None:
        now = time.time()
        bucket = int(now - EVERY_SECONDS / 2) // BUCKET_SECONDS * BUCKET_SECONDS  # of the past minute
        if not self._bucket:
            await self._kernel.declare(COLLECTION)
        if bucket != self._bucket and self._bucket:
            self._base = self._last
        self._bucket, self._last = bucket, self._counted()
        queues = await self._kernel.count_work((QUEUE,))
        done = [new - old for new, old in zip(self._last, self._base, strict=True)]
        body: dict[str, Any] = {
            "seen": now,
            "ended": done[0],
            "failed": done[1],
            "seconds": done[2:],
            "oldest": queues.oldest.get(QUEUE, 0.0),
            **{str(state): count for state, count in queues.work.get(QUEUE, {}).items()},
        }
        key = f"{bucket}/{self._name}"
        await self._kernel.commit(PARTITION, Put(VITALS, key, to_json(body), {"at": bucket}, KEPT_SECONDS))

    def _counted(self) -> list[int]:
        pulse = self._runner.pulse
        return [pulse.ended, pulse.failed, *pulse.seconds.counts]


async def history(kernel: Kernel, *, hours: float) -> list[dict[str, Any]]:
    """Return the buckets of the last hours, oldest first, without buckets in which no process ran."""
    await kernel.declare(COLLECTION)
    since = int(time.time() - hours * 3600) // BUCKET_SECONDS * BUCKET_SECONDS
    found: defaultdict[int, list[Mapping[str, Any]]] = defaultdict(list)
    async for record in kernel.scan(PARTITION, Query(VITALS, order="at", since=since), page=1000):
        found[int(record.key.partition("/")[0])].append(from_json(record.body))
    return [_merged(at, bodies) for at, bodies in sorted(found.items())]


def _merged(at: int, bodies: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of all processes in a bucket, and the queue as of the last record."""
    last = max(bodies, key=lambda body: body["seen"])
    counts = [sum(column) for column in zip(*(body["seconds"] for body in bodies), strict=True)]
    return {
        "at": at,
        "processes": len(bodies),
        "ended": sum(body["ended"] for body in bodies),
        "failed": sum(body["failed"] for body in bodies),
        "p50Seconds": bucket_quantile(counts, 0.5),
        "p95Seconds": bucket_quantile(counts, 0.95),
        "waiting": last.get("waiting", 0),
        "running": last.get("held", 0),
        "dead": last.get("dead", 0),
        "oldestSeconds": last["oldest"],
    }
