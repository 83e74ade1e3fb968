"""The statistics of the last hours that processes store."""

from __future__ import annotations

import asyncio
import time

import pytest

from keelbolt.data.erasing import PARTITION
from keelbolt.kernel import Query
from keelbolt.observability.metrics import DURATION_BOUNDS, bucket_quantile
from keelbolt.tasks import TaskContext, statistics
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.statistics import VITALS, history
from tests.integration.tasks.stage import Stage, message, until


async def ask(engine: TaskEngine, text: str = "Hello") -> None:
    await engine.tasks.settled(await engine.tasks.send(message(text)))


async def worker(ctx: TaskContext) -> None:
    if ctx.user_text == "fail":
        await ctx.fail("as asked")
    else:
        await ctx.complete()


async def test_two_processes_add_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process has one record per bucket, regardless of the number of writes; the sum is correct."""
    monkeypatch.setattr(statistics, "EVERY_SECONDS", 0.1)
    async with Stage(url) as stage:
        one, two = await stage.engine(worker), await stage.engine(worker)
        for _ in range(3):
            await ask(one)
        await ask(two, "fail")

        async def written() -> bool:
            return bool(sum(bucket["ended"] for bucket in await history(one.kernel, hours=1)) == 4)

        await until(written)
        await asyncio.sleep(0.3)
        buckets = await history(two.kernel, hours=1)
        records = [record async for record in one.kernel.scan(PARTITION, Query(VITALS, order="at"))]
        assert sum(bucket["ended"] for bucket in buckets) == 4
        assert sum(bucket["failed"] for bucket in buckets) == 1
        assert len(records) <= 2 * len(buckets)
        assert abs(buckets[-1]["at"] - time.time()) < 2 * statistics.BUCKET_SECONDS
        assert 0 < next(bucket["p95Seconds"] for bucket in buckets if bucket["ended"]) < 10
        assert (buckets[-1]["waiting"], buckets[-1]["running"], buckets[-1]["dead"]) == (0, 0, 0)


async def test_a_bucket_ends_and_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "EVERY_SECONDS", 0.1)
    monkeypatch.setattr(statistics, "BUCKET_SECONDS", 1)
    async with Stage("memory:") as stage:
        engine = await stage.engine(worker)
        for _ in range(8):
            await ask(engine)
            await asyncio.sleep(0.3)
        buckets = await history(engine.kernel, hours=1)
    assert len(buckets) >= 2
    assert 6 <= sum(bucket["ended"] for bucket in buckets) <= 8  # the last minute may not be written yet


async def test_a_short_process_writes_nothing() -> None:
    async with Stage("memory:") as stage:
        engine = await stage.engine(worker)
        await ask(engine)
        assert await history(engine.kernel, hours=48) == []


def test_quantiles_of_buckets() -> None:
    counts = [0] * (len(DURATION_BOUNDS) + 1)
    assert bucket_quantile(counts, 0.5) is None
    counts[3] = 100  # from 4 to 8 ms
    assert bucket_quantile(counts, 0.5) == pytest.approx(0.006)
    counts[-1] = 100
    assert bucket_quantile(counts, 0.95) == DURATION_BOUNDS[-1]
