"""Cancelling: wherever a task stands and wherever it runs, with one end, and the right word for who came too late."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from keelbolt.errors import KeelboltError, TaskNotCancelableError, TaskTerminalStateError, TurnEnded
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext, TaskEngine
from keelbolt.tasks import run as run_module
from keelbolt.tasks import runner as runner_module
from tests.integration.tasks.stage import Stage, answer, ask, at_most, bodies, log, message, one_end, state_of, until


async def heeds(ctx: TaskContext) -> None:
    """Looks at is_cancelled now and then."""
    if ctx.user_text == "ask":
        await ctx.request_input("what?")
        return
    await until(lambda: ctx.is_cancelled)


async def sleeps(ctx: TaskContext) -> None:
    """Waits for something long, as most workers do."""
    await asyncio.sleep(60)


async def test_a_submitted_task(stage: Stage) -> None:
    """Nobody has begun it, and nobody will."""
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
    """It waits for its user no more; a late answer is refused."""
    engine = await stage.engine(heeds)
    task = await ask(engine, "ask")
    with at_most(2.0):
        assert (await engine.tasks.cancel(task.id)).view.state is TaskState.canceled
    with pytest.raises(TaskTerminalStateError):
        await engine.tasks.send(message("answer", task_id=task.id))
    assert await one_end(engine, task.id) is TaskState.canceled


@pytest.mark.parametrize("worker", [heeds, sleeps])
async def test_a_working_task(stage: Stage, worker: object) -> None:
    """A worker that heeds is_cancelled stops by itself, one that does not is stopped; also from another process."""
    assert callable(worker)
    engine = await stage.engine(worker, cancel_seconds=0.1)
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


async def test_a_worker_that_swallows_the_stop(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that can't be stopped is overruled: the task is canceled without it, and what it says later is void."""
    monkeypatch.setattr(run_module, "STUBBORN_SECONDS", 0.1)
    release = asyncio.Event()
    heard: list[object] = []

    async def stubborn(ctx: TaskContext) -> None:
        try:
            await release.wait()
        except asyncio.CancelledError:
            heard.append("stop")
            await asyncio.wait_for(release.wait(), 5.0)
        try:
            await ctx.complete("after all")
        except TurnEnded as error:
            heard.append(type(error))

    engine = await stage.engine(stubborn, cancel_seconds=0.05, concurrency=1)
    sent = await engine.tasks.send(message())
    assert (await engine.tasks.cancel(sent.task.record.task_id)).view.state is TaskState.canceled
    assert heard == ["stop"]
    runner = engine.runner
    assert runner is not None
    await until(lambda: runner.free == 1)  # its slot is free again
    release.set()
    await until(lambda: len(heard) == 2)
    assert heard == ["stop", TurnEnded]
    assert await one_end(engine, sent.task.record.task_id) is TaskState.canceled


async def test_it_answers_in_time(stage: Stage) -> None:
    """Cancel waits as long as it was told; the task is canceled when its worker stops."""
    engine = await stage.engine(sleeps, cancel_seconds=0.4)
    sent = await engine.tasks.send(message())
    with at_most(0.35):
        task = await engine.tasks.cancel(sent.task.record.task_id, seconds=0.05)
    assert task.view.state is TaskState.working
    assert (await answer(engine, sent)).status.state is TaskState.canceled


async def test_twice(stage: Stage) -> None:
    """Two cancels at once: the task is canceled once; one after the end is told that there is nothing to cancel."""
    engine = await stage.engine(heeds)
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    answers = await asyncio.gather(*(engine.tasks.cancel(task_id) for _ in range(3)), return_exceptions=True)
    for one in answers:
        assert isinstance(one, TaskNotCancelableError) or one.view.state is TaskState.canceled  # type: ignore[union-attr]
    with pytest.raises(TaskNotCancelableError):
        await engine.tasks.cancel(task_id)
    assert await one_end(engine, task_id) is TaskState.canceled


async def test_a_cancel_survives_the_process(stage: Stage) -> None:
    """The process dies after the cancel was noted: who takes over ends the task, and does not run it."""
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


async def test_a_cancel_that_nobody_heard_yet(stage: Stage) -> None:
    """The process dies before it looked into the inbox: who takes over hears it."""

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
    """Cancel and complete at the same moment, again and again, from two processes."""
    losers: dict[str, str] = {}
    chance = random.Random(7)
    lead = 0.01  # seconds that a cancel takes to arrive: adapted, so that about every second one does

    async def worker(ctx: TaskContext) -> None:
        await gates[ctx.message_id].wait()
        await asyncio.sleep(chance.random() * 2 * lead)
        try:
            await ctx.complete("done")
        except KeelboltError as error:
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
        try:
            canceled = await canceller.tasks.cancel(task_id, seconds=20.0)
        except TaskNotCancelableError:
            heard = TaskState.completed
        else:
            heard = canceled.view.state
        assert await one_end(engine, task_id) is heard
        entries = await log(engine, task_id)
        assert (b"done" in b"".join(entry.data for entry in entries)) == (heard is TaskState.completed)
        if heard is TaskState.completed:
            assert task_id not in losers
            lead *= 1.2
        else:
            lead /= 1.2
        outcomes[heard.name] += 1

    for start in range(0, rounds, 10):
        await asyncio.gather(*(one(number) for number in range(start, min(rounds, start + 10))))
    return outcomes


@pytest.mark.timeout(1800)
async def test_cancel_against_complete(stage: Stage, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly one terminal event each; who loses is told so: the client by its error, the worker by being stopped."""
    monkeypatch.setattr(runner_module, "LISTEN_AFTER_SECONDS", 0.0)
    rounds = 5000 if full else 80
    outcomes = await race(stage, rounds)
    assert sum(outcomes.values()) == rounds
    assert min(outcomes["completed"], outcomes["canceled"]) >= rounds / 10, outcomes  # otherwise nothing was raced
