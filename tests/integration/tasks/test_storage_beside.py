"""A `Storage` beside a running engine: no worker writes to a task that it ended or deleted."""

from __future__ import annotations

import asyncio
import logging

import pytest

from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext
from keelbolt.tasks.families import EVENTS, QUEUE
from keelbolt.tasks.storage import KernelStorage
from tests.integration.tasks.stage import Stage, log, message, until


async def silent(ctx: TaskContext) -> None:
    """Writes nothing."""
    await asyncio.sleep(60)


async def streaming(ctx: TaskContext) -> None:
    """Streams chunks, which are appended without reading the task."""
    while True:
        await ctx.emit_text_artifact("more", append=True)
        await asyncio.sleep(0.01)


async def reporting(ctx: TaskContext) -> None:
    """Changes the status continuously."""
    while True:
        await ctx.send_status("busy")
        await asyncio.sleep(0.01)


async def stepping(ctx: TaskContext) -> None:
    """Records steps."""
    while True:
        await ctx.step("step", asyncio.sleep, 0.01)


@pytest.mark.parametrize("worker", [silent, streaming, reporting, stepping], ids=lambda worker: worker.__name__)
@pytest.mark.parametrize("how", ["canceled", "completed", "delete"])
async def test_the_worker_stops_and_nothing_follows_the_end(
    stage: Stage,
    worker: object,
    how: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`update_task` with a terminal state, or `delete_task`: the worker is stopped, and no error is logged."""
    assert callable(worker)
    monkeypatch.setattr("keelbolt.tasks.inbox.CHECK_SECONDS", 0.2)
    ended = asyncio.Event()

    async def watched(ctx: TaskContext) -> None:
        try:
            await worker(ctx)
        finally:
            ended.set()

    engine = await stage.engine(watched)
    other = await stage.engine()
    storage: KernelStorage[None] = KernelStorage(other.kernel)
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    await asyncio.sleep(0.2)
    with caplog.at_level(logging.WARNING, logger="keelbolt"):
        if how == "delete":
            async with asyncio.timeout(20):
                assert await storage.delete_task(task_id)
        else:
            await storage.update_task(task_id, TaskState[how])
        version = await storage.get_version(task_id)
        async with asyncio.timeout(20):
            await ended.wait()
        runner = engine.runner
        assert runner is not None
        await until(lambda: not runner.runs)
        await asyncio.sleep(0.1)
    assert await storage.get_version(task_id) == version
    scope = other.kernel.scoped(sent.task.scope.partition)
    assert await scope.work(QUEUE, task_id) is None
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    if how == "delete":
        assert (await scope.log_state(EVENTS, task_id)).head == 0
    else:
        assert how.upper().encode() in (await log(other, task_id))[-1].data
