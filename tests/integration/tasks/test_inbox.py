"""Steering: entries reach a running worker in order, and the log records them with their reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keelbolt.errors import InvalidAgentResponseError, InvalidTaskRequest, TaskNotAcceptingMessagesError
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import SteeringRequest, TaskContext
from keelbolt.tasks.inbox import SteeringKind
from tests.integration.tasks.stage import Stage, answer, ask, at_most, bodies, message, one_end, until


class Listener:
    """A worker that reads steering until it gets "stop"."""

    def __init__(self) -> None:
        self.received: list[SteeringRequest] = []

    async def __call__(self, ctx: TaskContext) -> None:
        async for event in ctx.inbox:
            self.received.append(event)
            if event.payload.get("stop"):
                break
        await ctx.complete(str(len(self.received)))


async def test_in_order(stage: Stage) -> None:
    """Each entry arrives once, in send order, from any process, with source, reason and payload."""
    listener = Listener()
    engine = await stage.engine(listener)
    other = await stage.engine()
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    kinds: list[SteeringKind] = ["inject", "redirect", "pause", "resume", "prioritise"]
    for number in range(30):
        one = (engine, other)[number % 2]
        await one.tasks.steer(
            task_id, kinds[number % 5], source=f"who {number}", reason=f"why {number}", payload={"number": number}
        )
    await other.tasks.steer(task_id, "inject", payload={"stop": True})
    with at_most(5.0):
        task = await answer(engine, sent)
    assert task.status.state is TaskState.completed
    expected = [
        SteeringRequest(kinds[number % 5], f"who {number}", f"why {number}", {"number": number}) for number in range(30)
    ]
    assert listener.received[:-1] == expected
    noted = await bodies(engine, task_id, "steer")
    assert [(body["kind"], body["source"], body["reason"], body["payload"]) for body in noted[:-1]] == [
        (event.kind, event.source, event.reason, event.payload) for event in expected
    ]
    assert [body["inbox"] for body in noted] == list(range(1, 32))
    assert await one_end(engine, task_id) is TaskState.completed


async def test_concurrent_steering(stage: Stage) -> None:
    """Many concurrent entries all arrive once, in log order."""
    listener = Listener()
    engine = await stage.engine(listener)
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    await asyncio.gather(*(engine.tasks.steer(task_id, "inject", payload={"n": number}) for number in range(600)))
    await engine.tasks.steer(task_id, "inject", payload={"stop": True})
    with at_most(8.0):
        await answer(engine, sent)
    noted = await bodies(engine, task_id, "steer")
    assert [event.payload for event in listener.received] == [body["payload"] for body in noted]
    assert sorted(event.payload.get("n", 600) for event in listener.received) == list(range(601))


async def test_a_worker_that_reads_no_steering(stage: Stage) -> None:
    """A worker need not read steering: the entries are in the log, and the task's end does not wait for a reader."""
    gate = asyncio.Event()

    async def deaf(ctx: TaskContext) -> None:
        await gate.wait()
        await ctx.complete()

    engine = await stage.engine(deaf)
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    await engine.tasks.steer(task_id, "inject", reason="unheard")
    gate.set()
    assert (await answer(engine, sent)).status.state is TaskState.completed
    assert [body["reason"] for body in await bodies(engine, task_id, "steer")] == ["unheard"]
    assert await one_end(engine, task_id) is TaskState.completed


async def test_lost_notifications(stage: Stage) -> None:
    """A worker without notifications from other processes gets a steering entry by the safety poll."""
    listener = Listener()
    engine = await stage.engine(listener)
    stage.deafen(engine)
    other = await stage.engine()
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    await until(lambda: engine.runner is not None and bool(engine.runner.runs))
    await asyncio.sleep(0.3)
    await other.tasks.steer(task_id, "inject", payload={"stop": True})
    with at_most(8.0):
        assert (await answer(engine, sent)).status.state is TaskState.completed
    assert [event.payload for event in listener.received] == [{"stop": True}]


async def test_a_listener_ends_with_the_turn(stage: Stage) -> None:
    """A worker may read steering in the background; the reader stops when the turn ends."""
    received = []

    async def worker(ctx: TaskContext) -> None:
        async def listen() -> None:
            received.extend([event.reason async for event in ctx.inbox])
            received.append("over")

        async with asyncio.TaskGroup() as group:
            group.create_task(listen())
            await until(lambda: _count(ctx) >= 1)
            await ctx.complete()

    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message())
    await engine.tasks.steer(sent.task.record.task_id, "inject", reason="hello")
    with at_most(5.0):
        assert (await answer(engine, sent)).status.state is TaskState.completed
    await until(lambda: "over" in received)
    assert received == ["hello", "over"]


def _count(ctx: TaskContext) -> int:
    return ctx._run.journal.task.view.inbox


async def test_after_a_takeover(stage: Stage) -> None:
    """Entries that arrive while the process is dying reach the next one."""
    listener = Listener()
    first = await stage.engine(listener)
    sent = await first.tasks.send(message())
    task_id = sent.task.record.task_id
    await asyncio.sleep(0.01)
    await stage.crash(first, expire=False)
    front = await stage.engine()
    await front.tasks.steer(task_id, "inject", reason="unheard so far")
    await front.tasks.steer(task_id, "inject", payload={"stop": True})
    await stage.expire(first)
    second = await stage.engine(listener)
    await answer(second, sent)
    assert [event.reason for event in listener.received] == ["unheard so far", ""]


async def test_steering_that_is_refused(stage: Stage) -> None:
    """Steering is refused for a task that has ended or waits for its user, and for an unknown kind."""

    async def worker(ctx: TaskContext) -> None:
        await (ctx.complete() if ctx.user_text == "end" else ctx.request_input("?"))

    engine = await stage.engine(worker)
    for text in ("end", "pause"):
        task = await ask(engine, text)
        with pytest.raises(TaskNotAcceptingMessagesError):
            await engine.tasks.steer(task.id, "inject")
        assert await bodies(engine, task.id, "steer") == []
    wrong: Any = "explode"
    task = await ask(engine, "end")
    with pytest.raises(InvalidTaskRequest, match="inject, redirect, pause, resume, prioritise"):
        await engine.tasks.steer(task.id, wrong)


@pytest.mark.parametrize(
    "payload", [{"x": object()}, {"x": float("nan")}, {"x": "\ud800"}], ids=["object", "nan", "surrogate"]
)
async def test_values_that_are_not_json(memory: Stage, payload: dict[str, Any]) -> None:
    listener = Listener()
    engine = await memory.engine(listener)
    sent = await engine.tasks.send(message())
    with pytest.raises((InvalidTaskRequest, InvalidAgentResponseError)):
        await engine.tasks.steer(sent.task.record.task_id, "inject", payload=payload)
    await engine.tasks.steer(sent.task.record.task_id, "inject", payload={"stop": True})
    assert (await answer(engine, sent)).status.state is TaskState.completed
