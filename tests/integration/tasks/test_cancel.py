"""Cancelling in every state and process: the task ends once, and the loser of a race gets the right error."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter

import pytest

from keelbolt.auth import ANONYMOUS
from keelbolt.errors import InvalidValue, TaskNotCancelableError, TaskTerminalStateError, TurnEnded
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext, TaskEngine
from keelbolt.tasks import runner as runner_module
from keelbolt.tasks.families import QUEUE
from tests.integration.tasks.stage import (
    Stage,
    answer,
    ask,
    at_most,
    bodies,
    log,
    message,
    one_end,
    state_of,
    states,
    until,
)


async def stops_on_cancel(ctx: TaskContext) -> None:
    """Checks is_cancelled regularly."""
    if ctx.user_text == "ask":
        await ctx.request_input("what?")
        return
    async with ctx.shielded(30):
        await until(lambda: ctx.is_cancelled)


async def writes(ctx: TaskContext) -> None:
    """Catches the first stop and continues to write."""
    for number in range(1000):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.02)
        if number % 2:
            await ctx.send_status(f"{number}")
        else:
            await ctx.update_context(number)


async def sleeps(ctx: TaskContext) -> None:
    """Waits for a long time, as most workers do."""
    await asyncio.sleep(60)


async def test_a_submitted_task(stage: Stage) -> None:
    """No worker has started the task, and none will."""
    front = await stage.engine()
    sent = await front.tasks.send(message())
    task = await front.tasks.cancel(sent.task.record.task_id)
    assert task.view.state is TaskState.canceled
    begun = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.task_id)

    await stage.engine(worker)
    await asyncio.sleep(0.1)
    assert not begun
    assert await one_end(front, task.record.task_id) is TaskState.canceled


async def test_a_paused_task(stage: Stage) -> None:
    """The task no longer waits for its user; a late answer is refused."""
    engine = await stage.engine(stops_on_cancel)
    task = await ask(engine, "ask")
    with at_most(2.0):
        assert (await engine.tasks.cancel(task.id)).view.state is TaskState.canceled
    with pytest.raises(TaskTerminalStateError):
        await engine.tasks.send(message("answer", task_id=task.id))
    assert await one_end(engine, task.id) is TaskState.canceled


@pytest.mark.parametrize("worker", [stops_on_cancel, sleeps, writes])
async def test_a_working_task(stage: Stage, worker: object) -> None:
    """A worker in a shielded block stops by itself, any other worker is stopped; also from another process."""
    assert callable(worker)
    engine = await stage.engine(worker)
    other = await stage.engine()
    for canceller in (engine, other):
        sent = await engine.tasks.send(message())
        task_id = sent.task.record.task_id
        with at_most(4.0):
            assert (await canceller.tasks.cancel(task_id, reason="changed my mind")).view.state is TaskState.canceled
        assert (await answer(engine, sent)).status.state is TaskState.canceled
        assert await one_end(engine, task_id) is TaskState.canceled
        (steered,) = await bodies(engine, task_id, "steer")
        assert (steered["kind"], steered["reason"]) == ("cancel", "changed my mind")


async def test_a_worker_that_swallows_the_stop(stage: Stage) -> None:
    """A worker that can't be stopped is overruled: the task is canceled, and its later writes are refused."""
    release = asyncio.Event()
    events: list[object] = []

    async def stubborn(ctx: TaskContext) -> None:
        try:
            await release.wait()
        except asyncio.CancelledError:
            events.append("stop")
        for _ in range(2):
            try:
                await ctx.complete("after all")
            except (TurnEnded, asyncio.CancelledError) as error:
                events.append(type(error))
            await asyncio.wait_for(release.wait(), 5.0)

    engine = await stage.engine(stubborn, cancel_seconds=0.3, concurrency=1)
    sent = await engine.tasks.send(message())
    assert (await engine.tasks.cancel(sent.task.record.task_id)).view.state is TaskState.canceled
    assert events == ["stop", asyncio.CancelledError]
    runner = engine.runner
    assert runner is not None
    await until(lambda: runner.free == 1)  # its slot is free again
    release.set()
    await until(lambda: len(events) == 3)
    assert events == ["stop", asyncio.CancelledError, TurnEnded]
    assert await one_end(engine, sent.task.record.task_id) is TaskState.canceled


async def test_a_worker_that_swallows_the_stop_during_an_outage(stage: Stage) -> None:
    """If the end of the task can't be written without its worker, the task is released, and ends after the outage."""
    stopped, release = asyncio.Event(), asyncio.Event()
    calls = 0

    async def stubborn(ctx: TaskContext) -> None:
        nonlocal calls
        calls += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if calls > 1:  # the call to clean up
                raise
            stage.lines[engine].cut = True
            stopped.set()
        await release.wait()

    engine, client = await stage.engine(stubborn, cancel_seconds=0.2), await stage.engine()
    sent = await client.tasks.send(message())
    await until(lambda: calls == 1)
    await client.tasks.cancel(sent.task.record.task_id, seconds=0.01)
    await stopped.wait()
    await asyncio.sleep(0.5)  # the grace period ends during the outage
    stage.lines[engine].cut = False
    assert (await answer(client, sent)).status.state is TaskState.canceled
    release.set()


async def test_cancel_returns_in_time(stage: Stage) -> None:
    """Cancel waits for the given seconds; the task is canceled when its worker leaves its shielded block."""
    release = asyncio.Event()

    async def careful(ctx: TaskContext) -> None:
        async with ctx.shielded(30):
            await until(lambda: ctx.is_cancelled)
            await release.wait()

    engine = await stage.engine(careful, cancel_seconds=0.1)
    sent = await engine.tasks.send(message())
    with at_most(3.0):
        task = await engine.tasks.cancel(sent.task.record.task_id, seconds=0.05)
    assert task.view.state is TaskState.working
    release.set()
    assert (await answer(engine, sent)).status.state is TaskState.canceled


@pytest.mark.parametrize("inside", [True, False])
async def test_a_shield_gives_time_to_clean_up(stage: Stage, inside: bool) -> None:
    """In a shielded block a cancel does not stop the worker, and its writes are stored, until the block's time is over.
    The cancel takes effect at the end of the block. The same applies to a block that begins after the cancel.
    """
    began, after = asyncio.Event(), []

    async def clean_up(ctx: TaskContext) -> None:
        async with ctx.shielded(30), ctx.shielded(0):
            began.set()
            await until(lambda: ctx.is_cancelled)
            await asyncio.sleep(0.5)
            await ctx.send_status("the reservation is undone")
        after.append("block")

    async def worker(ctx: TaskContext) -> None:
        if inside:
            await clean_up(ctx)
            return
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await clean_up(ctx)

    engine = await stage.engine(worker, cancel_seconds=0.1)
    sent = await engine.tasks.send(message())
    await began.wait()
    task = await engine.tasks.cancel(sent.task.record.task_id)
    assert task.view.state is TaskState.canceled
    assert after == ([] if inside else ["block"])
    assert b"undone" in b"".join(entry.data for entry in await log(engine, task.record.task_id))
    assert await one_end(engine, task.record.task_id) is TaskState.canceled


async def test_a_shield_ends(stage: Stage) -> None:
    """A worker that exceeds the time of its shield is stopped; a second block does not extend the time."""
    events: list[object] = []
    release = asyncio.Event()

    async def greedy(ctx: TaskContext) -> None:
        for _ in range(3):
            try:
                async with ctx.shielded(0.3):
                    await release.wait()
            except asyncio.CancelledError:
                events.append("stopped")

    engine = await stage.engine(greedy, cancel_seconds=0.1)
    sent = await engine.tasks.send(message())
    with at_most(10.0):
        assert (await engine.tasks.cancel(sent.task.record.task_id, seconds=20)).view.state is TaskState.canceled
    assert events == ["stopped"]
    release.set()


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", True])
async def test_a_shield_lasts_a_number_of_seconds(stage: Stage, seconds: float) -> None:
    async def worker(ctx: TaskContext) -> None:
        with pytest.raises(InvalidValue):
            async with ctx.shielded(seconds):
                pass
        await ctx.complete()

    engine = await stage.engine(worker)
    assert (await answer(engine, await engine.tasks.send(message()))).status.state is TaskState.completed


async def test_a_worker_that_fails_while_it_stops(stage: Stage) -> None:
    """The task is canceled, not failed."""

    async def worker(ctx: TaskContext) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("no luck")

    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message())
    assert (await engine.tasks.cancel(sent.task.record.task_id)).view.state is TaskState.canceled
    assert await one_end(engine, sent.task.record.task_id) is TaskState.canceled


async def test_a_process_that_does_not_react_loses_the_task(stage: Stage) -> None:
    """If the process hangs or has just died, the task is canceled anyway, and the process can no longer write."""
    engine = await stage.engine(sleeps)
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    await stage.crash(engine, expire=False)
    front = await stage.engine(cancel_seconds=0.2)
    with at_most(10.0):
        assert (await front.tasks.cancel(task_id)).view.state is TaskState.canceled
    item = await front.tasks.scope(ANONYMOUS).work(QUEUE, task_id)
    assert item is not None  # the next process cleans up: see test_late_cleanup.py
    assert item.holder is None
    assert (await states(front, task_id))[-2:] == ["working", "canceled"]


async def test_twice(stage: Stage) -> None:
    """Two concurrent cancels cancel the task once; a cancel after the end raises TaskNotCancelableError."""
    engine = await stage.engine(stops_on_cancel)
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    answers = await asyncio.gather(*(engine.tasks.cancel(task_id) for _ in range(3)), return_exceptions=True)
    for one in answers:
        assert isinstance(one, TaskNotCancelableError) or one.view.state is TaskState.canceled  # type: ignore[union-attr]
    with pytest.raises(TaskNotCancelableError):
        await engine.tasks.cancel(task_id)
    assert await one_end(engine, task_id) is TaskState.canceled


async def test_a_cancel_survives_the_process(stage: Stage) -> None:
    """The process dies after the cancel was recorded: the next process ends the task without running it."""
    runs = []

    async def worker(ctx: TaskContext) -> None:
        runs.append(ctx.attempt)
        await asyncio.sleep(60)

    engine = await stage.engine(worker, cancel_seconds=30.0)
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    await engine.tasks.cancel(task_id, seconds=0.01)
    await until(lambda: bodies(engine, task_id, "steer"))
    await stage.crash(engine)
    other = await stage.engine(worker)
    await until(lambda: _is(other, task_id, TaskState.canceled))
    assert runs == [1]
    assert await one_end(other, task_id) is TaskState.canceled


async def test_a_cancel_that_was_not_read_yet(stage: Stage) -> None:
    """The process dies before it reads its inbox: the next process applies the cancel."""

    async def worker(ctx: TaskContext) -> None:
        await until(lambda: ctx.is_cancelled, seconds=30.0)

    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message())
    await stage.crash(engine, expire=False)
    front = await stage.engine()
    task_id = sent.task.record.task_id
    assert (await front.tasks.cancel(task_id, seconds=0.01)).view.state is TaskState.working
    await stage.expire(engine)
    await stage.engine(worker)
    await until(lambda: _is(front, task_id, TaskState.canceled))
    assert await one_end(front, task_id) is TaskState.canceled


async def _is(engine: TaskEngine, task_id: str, state: TaskState) -> bool:
    return await state_of(engine, task_id) is state


# --------------------------------------------------------------------------------------------- cancel against complete


async def race(stage: Stage, rounds: int) -> Counter[str]:
    """Cancel and complete at the same moment, repeatedly, from two processes."""
    losers: dict[str, str] = {}
    chance = random.Random(7)
    lead = 0.01  # seconds until a cancel arrives, adapted so that about half of them win

    async def worker(ctx: TaskContext) -> None:
        await gates[ctx.message_id].wait()
        await asyncio.sleep(chance.random() * 2 * lead)
        try:
            await ctx.complete("done")
        except BaseException as error:
            losers[ctx.task_id] = type(error).__name__
            raise

    gates: dict[str, asyncio.Event] = {}
    engine = await stage.engine(worker, cancel_seconds=0.0)
    other = await stage.engine()
    outcomes: Counter[str] = Counter()

    async def one(number: int) -> None:
        nonlocal lead
        canceller = (engine, other)[number % 2]
        gate = gates[f"race-{number}"] = asyncio.Event()
        sent = await engine.tasks.send(message(message_id=f"race-{number}"))
        task_id = sent.task.record.task_id
        gate.set()
        await asyncio.sleep(0.005)
        try:
            canceled = await canceller.tasks.cancel(task_id, seconds=20.0)
        except TaskNotCancelableError:
            end_state = TaskState.completed
        else:
            end_state = canceled.view.state
        assert await one_end(engine, task_id) is end_state
        entries = await log(engine, task_id)
        assert (b"done" in b"".join(entry.data for entry in entries)) == (end_state is TaskState.completed)
        if end_state is TaskState.completed:
            assert task_id not in losers
            lead *= 1.2
        else:
            lead /= 1.2
        outcomes[end_state.name] += 1

    for start in range(0, rounds, 10):
        await asyncio.gather(*(one(number) for number in range(start, min(rounds, start + 10))))
    return outcomes


@pytest.mark.timeout(1800)
async def test_cancel_against_complete(stage: Stage, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task has exactly one terminal event. The loser is notified: the client by an error, the worker by a stop."""
    monkeypatch.setattr(runner_module, "LISTEN_AFTER_SECONDS", 0.0)
    rounds = 5000 if full else 80
    outcomes = await race(stage, rounds)
    assert sum(outcomes.values()) == rounds
    assert min(outcomes["completed"], outcomes["canceled"]) >= rounds / 10, outcomes  # otherwise there was no race
