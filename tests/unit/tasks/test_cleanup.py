"""A process dies between a cancel and the end of the task: the worker is called once more, to clean up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from keelbolt.auth.principal import ANONYMOUS
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext, TaskEngine
from keelbolt.tasks.inbox import post
from tests.integration.tasks.stage import Stage, answer, bodies, message, one_end, until


class BookingWorker:
    """A worker that books in a step, creates a file, and undoes both when it is canceled."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.booked: list[str] = []
        self.undone: list[str] = []
        self.calls = 0
        self.waiting = asyncio.Event()
        self.dead = False

    async def book(self, what: str) -> str:
        self.booked.append(what)
        return what

    async def handle(self, ctx: TaskContext) -> None:
        self.calls += 1
        await ctx.emit_text_artifact("a chunk between the steps")
        booked = await ctx.step("book", self.book, "flight")
        second = await ctx.step("book", self.book, "hotel")
        self.path.write_text("unfinished")
        try:
            self.waiting.set()
            await asyncio.sleep(60)
            await ctx.step("book", self.book, "never")
        finally:
            if ctx.is_cancelled:
                self.path.unlink()
                async with ctx.shielded(5):
                    await ctx.step("undo", self.undo, booked, second)

    async def undo(self, *what: str) -> None:
        self.undone += what


async def post_cancel(engine: TaskEngine, task_id: str) -> None:
    """Make the commit of `cancel`, without waiting for the end."""
    await engine.kernel.commit(ANONYMOUS.partition, *post(task_id, "cancel", {"source": "user", "reason": "enough"}))


@pytest.mark.parametrize("noted", [False, True])
async def test_the_cleanup_runs_in_the_next_process(
    stage: Stage, tmp_path: Path, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds whether or not the dead process had recorded the cancel."""
    booking = BookingWorker(tmp_path / "file")
    first = await stage.engine(booking.handle, cancel_seconds=30)
    sent = await first.tasks.send(message())
    task_id = sent.task.task_id
    await booking.waiting.wait()
    runner = first.runner
    assert runner is not None
    (run,) = runner.runs.values()
    if noted:
        monkeypatch.setattr(run, "take", lambda *_, **__: None)  # it dies before it stops the worker
    else:
        stage.lines[first].cut = True
    await post_cancel(await stage.engine(), task_id)
    if noted:
        await until(lambda: run.journal.task.view.cancel is not None)
    await stage.crash(first)
    assert booking.path.exists()

    second = await stage.engine(booking.handle)
    task = await answer(second, sent)
    assert task.status.state is TaskState.canceled
    assert await one_end(second, task_id) is TaskState.canceled
    assert (booking.calls, booking.booked, booking.undone) == (2, ["flight", "hotel"], ["flight", "hotel"])
    assert not booking.path.exists()
    assert [body["kind"] for body in await bodies(second, task_id, "steer")] == ["cancel"]


async def test_a_worker_without_recorded_steps_cleans_up_too(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "file"
    waiting = asyncio.Event()
    work: list[str] = []

    async def worker(ctx: TaskContext) -> None:
        try:
            path.write_text("unfinished")
            waiting.set()
            await asyncio.sleep(60)
            work.append("done")
        finally:
            if ctx.is_cancelled:
                path.unlink()

    first = await stage.engine(worker)
    sent = await first.tasks.send(message())
    await waiting.wait()
    stage.lines[first].cut = True
    await post_cancel(await stage.engine(), sent.task.task_id)
    await stage.crash(first)
    assert path.exists()
    second = await stage.engine(worker)
    assert (await answer(second, sent)).status.state is TaskState.canceled
    assert not path.exists()
    assert not work


async def test_a_worker_that_continues_is_overruled(stage: Stage) -> None:
    """The cleanup has `cancel_seconds`, like every canceled worker."""
    waiting = asyncio.Event()
    calls: list[bool] = []

    async def worker(ctx: TaskContext) -> None:
        await ctx.step("one", lambda: 1)
        calls.append(ctx.is_cancelled)
        waiting.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if ctx.is_cancelled:
                await asyncio.sleep(5)

    first = await stage.engine(worker)
    sent = await first.tasks.send(message())
    await waiting.wait()
    stage.lines[first].cut = True
    await post_cancel(await stage.engine(), sent.task.task_id)
    await stage.crash(first)
    second = await stage.engine(worker, cancel_seconds=0.3)
    assert (await answer(second, sent)).status.state is TaskState.canceled
    assert calls == [False, True]
