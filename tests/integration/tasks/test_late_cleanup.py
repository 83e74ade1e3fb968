"""A task that is canceled while no process runs it ends at once; its worker cleans up in the next process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keelbolt.auth.principal import ANONYMOUS
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext, TaskEngine
from keelbolt.tasks.dead import dead_letters
from keelbolt.tasks.families import QUEUE
from keelbolt.tasks.notes import CLEANUP_KINDS
from keelbolt.tasks.sweep import trim_log
from tests.integration.tasks.stage import Stage, bodies, log, look, message, states, until

PARTITION = ANONYMOUS.partition


class Booking:
    """A worker that books in a step, waits, and undoes the booking in a step when it is canceled."""

    def __init__(self) -> None:
        self.calls = 0
        self.booked = 0
        self.undone: list[dict[str, Any]] = []
        self.waiting = asyncio.Event()
        self.cleaning = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def book(self) -> int:
        self.booked += 1
        return self.booked

    async def undo(self, metadata: dict[str, Any]) -> None:
        self.undone.append(metadata)

    async def wait(self, ctx: TaskContext) -> None:
        await asyncio.sleep(60)

    async def handle(self, ctx: TaskContext) -> None:
        self.calls += 1
        await ctx.step("book", self.book)
        try:
            self.waiting.set()
            await self.wait(ctx)
            await ctx.complete("never")
        finally:
            if ctx.is_cancelled:
                async with ctx.shielded(5):
                    await ctx.send_status("undoing it")
                    await ctx.emit_text_artifact("a report of it")
                    await ctx.step("undo", self.undo, ctx.cancel_metadata)
                    self.cleaning.set()
                    await self.go_on.wait()


class Sleeper(Booking):
    async def wait(self, ctx: TaskContext) -> None:
        await ctx.sleep(86400)


async def cleaned(engine: TaskEngine, task_id: str) -> None:
    async def gone() -> bool:
        return await engine.kernel.work(PARTITION, QUEUE, task_id) is None

    await until(gone)


async def ended_once(engine: TaskEngine, task_id: str) -> None:
    """Check that the end is the last event that a client sees; after it, the log has only internal entries."""
    assert (await states(engine, task_id)).count("canceled") == 1
    kinds = [entry.kind for entry in await log(engine, task_id)]
    end = max(number for number, kind in enumerate(kinds) if kind in ("status", "said"))
    assert set(kinds[end + 1 :]) <= CLEANUP_KINDS
    task = await look(engine, task_id)
    assert task.status.state is TaskState.canceled
    assert not task.artifacts


async def lost(stage: Stage, booking: Booking, **settings: Any) -> tuple[TaskEngine, str]:
    """Return a client's engine, and a task whose process just died; its lease has not expired."""
    first = await stage.engine(booking.handle)
    sent = await first.tasks.send(message())
    await booking.waiting.wait()
    await stage.crash(first, expire=False)
    return await stage.engine(cancel_seconds=0.1, **settings), sent.task.task_id


async def test_the_cleanup_runs_after_the_end_of_the_task(stage: Stage) -> None:
    """The caller gets a response in time; the cleanup runs in the next process, with the metadata."""
    booking = Booking()
    client, task_id = await lost(stage, booking)
    canceled = await client.tasks.cancel(task_id, metadata={"why": "rain"})
    assert canceled.view.state is TaskState.canceled
    assert booking.calls == 1

    second = await stage.engine(booking.handle)
    await cleaned(second, task_id)
    assert (booking.calls, booking.booked, booking.undone) == (2, 1, [{"why": "rain"}])
    await ended_once(second, task_id)
    assert (await second.tasks.load(task_id)).view.cleanup is False


async def test_a_sleeping_worker_cleans_up(stage: Stage) -> None:
    sleeper = Sleeper()
    engine = await stage.engine(sleeper.handle)
    sent = await engine.tasks.send(message())
    task_id = sent.task.task_id

    async def asleep() -> bool:
        item = await engine.kernel.work(PARTITION, QUEUE, task_id)
        return item is not None and item.holder is None

    await until(asleep)
    assert (await engine.tasks.cancel(task_id, metadata={"why": "rain"})).view.state is TaskState.canceled
    await cleaned(engine, task_id)
    assert (sleeper.calls, sleeper.booked, sleeper.undone) == (2, 1, [{"why": "rain"}])
    await ended_once(engine, task_id)


async def test_a_worker_of_a_released_task_cleans_up(stage: Stage) -> None:
    """A process that stops releases its tasks; after a cancel, the next process cleans up."""
    booking = Booking()
    first = await stage.engine(booking.handle)
    sent = await first.tasks.send(message())
    await booking.waiting.wait()
    assert first.runner is not None
    await first.runner.stop()
    assert not booking.undone
    client = await stage.engine()
    assert (await client.tasks.cancel(sent.task.task_id)).view.state is TaskState.canceled
    second = await stage.engine(booking.handle)
    await cleaned(second, sent.task.task_id)
    assert (booking.calls, booking.undone) == (2, [{}])


async def test_a_cleanup_whose_process_dies_runs_again_and_skips_its_steps(stage: Stage) -> None:
    booking = Booking()
    client, task_id = await lost(stage, booking)
    await client.tasks.cancel(task_id)
    booking.go_on.clear()
    second = await stage.engine(booking.handle)
    await booking.cleaning.wait()
    await stage.crash(second)
    booking.go_on.set()
    third = await stage.engine(booking.handle)
    await cleaned(third, task_id)
    assert (booking.calls, booking.booked, booking.undone) == (3, 1, [{}])
    await ended_once(third, task_id)


async def test_a_process_that_stops_releases_the_cleanup(stage: Stage) -> None:
    booking = Booking()
    client, task_id = await lost(stage, booking)
    await client.tasks.cancel(task_id)
    booking.go_on.clear()
    second = await stage.engine(booking.handle, cancel_seconds=30)
    await booking.cleaning.wait()
    assert second.runner is not None
    await second.runner.stop()
    item = await client.kernel.work(PARTITION, QUEUE, task_id)
    assert item is not None
    assert item.holder is None
    booking.go_on.set()
    third = await stage.engine(booking.handle)
    await cleaned(third, task_id)
    assert booking.undone == [{}]


async def test_a_cleanup_that_kills_its_process_is_given_up(stage: Stage) -> None:
    """After the last attempt the task has a dead letter and stays canceled."""
    booking = Booking()
    client, task_id = await lost(stage, booking, max_attempts=2)
    await client.tasks.cancel(task_id)
    booking.go_on.clear()
    for _ in range(2):
        engine = await stage.engine(booking.handle)
        await booking.cleaning.wait()
        booking.cleaning.clear()
        await stage.crash(engine)
    last = await stage.engine(booking.handle)

    async def letters() -> list[str]:
        return [letter.reason for letter in (await dead_letters(last.store, last.kernel.scoped(PARTITION))).letters]

    await until(letters)
    assert await letters() == ["The task was canceled. Its worker could not clean up: the process died each time."]
    assert booking.calls == 3
    await ended_once(last, task_id)


@pytest.mark.parametrize("how", ["raise", "return", "complete", "ask", "go on"])
async def test_the_cleanup_runs_once_for_any_end_of_the_worker(stage: Stage, how: str) -> None:
    calls: list[bool] = []
    waiting = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        calls.append(ctx.is_cancelled)
        try:
            waiting.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if not ctx.is_cancelled:
                raise
            async with ctx.shielded(0.2 if how == "go on" else 5):
                match how:
                    case "raise":
                        raise RuntimeError("the cleanup failed") from None
                    case "complete":
                        await ctx.complete("too late")
                    case "ask":
                        await ctx.request_input("Shall I?", state={"asked": True})
                    case "go on":
                        await asyncio.sleep(60)
                    case _:
                        pass

    first = await stage.engine(worker)
    sent = await first.tasks.send(message())
    await waiting.wait()
    await stage.crash(first, expire=False)
    client = await stage.engine(cancel_seconds=0.1)
    await client.tasks.cancel(sent.task.task_id)
    second = await stage.engine(worker, cancel_seconds=0.2)
    await cleaned(second, sent.task.task_id)
    await asyncio.sleep(0.1)
    assert calls == [False, True]
    await ended_once(second, sent.task.task_id)
    assert (await second.tasks.load(sent.task.task_id)).view.kept == b"null"


async def test_a_task_that_no_worker_started_needs_no_cleanup(stage: Stage) -> None:
    client = await stage.engine()
    sent = await client.tasks.send(message())
    await client.tasks.cancel(sent.task.task_id)
    assert await client.kernel.work(PARTITION, QUEUE, sent.task.task_id) is None
    assert not await bodies(client, sent.task.task_id, "cleanup")


async def test_a_task_that_asked_needs_no_cleanup(stage: Stage) -> None:
    """The turn of a task that asked is over, so the worker has nothing to clean up."""
    calls: list[str] = []

    async def worker(ctx: TaskContext) -> None:
        calls.append(ctx.user_text)
        await ctx.request_input("Shall I?")

    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message())
    await engine.tasks.settled(sent)
    await engine.tasks.cancel(sent.task.task_id)
    assert await engine.kernel.work(PARTITION, QUEUE, sent.task.task_id) is None
    assert len(calls) == 1


async def test_a_log_that_was_trimmed_before_the_cleanup(stage: Stage) -> None:
    booking = Booking()
    client, task_id = await lost(stage, booking)
    await client.tasks.cancel(task_id)
    assert await trim_log(client.store, client.kernel.scoped(PARTITION), task_id)
    second = await stage.engine(booking.handle)
    await cleaned(second, task_id)
    assert (booking.calls, booking.booked, booking.undone) == (2, 1, [{}])
    assert (await look(second, task_id)).status.state is TaskState.canceled


async def test_a_process_that_hung_can_no_longer_write(stage: Stage) -> None:
    """The process resumes after the cancel: its worker is stopped, and the cleanup runs once."""
    booking = Booking()
    first = await stage.engine(booking.handle)
    sent = await first.tasks.send(message())
    await booking.waiting.wait()
    stage.lines[first].cut = True  # the process gets no notifications
    client = await stage.engine(cancel_seconds=0.1)
    await client.tasks.cancel(sent.task.task_id)
    stage.lines[first].cut = False
    await cleaned(client, sent.task.task_id)
    assert (booking.calls, booking.undone) == (2, [{}])
    await ended_once(client, sent.task.task_id)
