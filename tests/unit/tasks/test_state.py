"""`ctx.state`: one JSON value per task, committed with the end of a turn."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from keelbolt.errors import InvalidAgentResponseError, InvalidValue
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext
from tests.integration.tasks.stage import Stage, answer, ask, bodies, message, until


@dataclass
class Order:
    amount: int
    approved: bool = False


async def test_a_question_commits_the_state_and_the_next_turn_sees_it(stage: Stage) -> None:
    async def worker(ctx: TaskContext) -> None:
        order = ctx.state_as(Order)
        if order is None:
            await ctx.request_input("Shall I?", state=Order(int(ctx.user_text)))
            return
        await ctx.complete(f"{order.amount}: {ctx.user_text}")

    engine = await stage.engine(worker)
    asked = await ask(engine, "40")
    assert asked.status.state is TaskState.input_required
    assert await bodies(engine, asked.id, "state") == [{"value": {"amount": 40, "approved": False}}]
    done = await ask(engine, "yes", task_id=asked.id)
    assert done.artifacts[0].parts[0].text == "40: yes"


async def test_changes_in_place_are_committed_at_the_end_of_the_turn(stage: Stage) -> None:
    seen: list[Any] = []

    async def worker(ctx: TaskContext) -> None:
        if ctx.state is None:
            ctx.state = {"words": []}
        seen.append(list(ctx.state["words"]))
        ctx.state["words"].append(ctx.user_text)
        await ctx.request_input("And?")

    engine = await stage.engine(worker)
    task = await ask(engine, "a")
    await ask(engine, "b", task_id=task.id)
    await ask(engine, "c", task_id=task.id)
    assert seen == [[], ["a"], ["a", "b"]]


async def test_a_typed_state_that_is_changed_in_place_is_committed(stage: Stage) -> None:
    async def worker(ctx: TaskContext) -> None:
        order = ctx.state_as(Order)
        if order is None:
            await ctx.request_input(state=Order(1))
            return
        order.amount += 1
        await ctx.request_input(str(order.amount))

    engine = await stage.engine(worker)
    task = await ask(engine)
    await ask(engine, task_id=task.id)
    found = await ask(engine, task_id=task.id)
    assert found.status.message is not None
    assert found.status.message.text == "3"


async def test_an_unchanged_state_is_not_written_again(stage: Stage) -> None:
    async def worker(ctx: TaskContext) -> None:
        if ctx.state is None:
            await ctx.request_input(state={"a": 1})
            return
        await ctx.request_input("again")

    engine = await stage.engine(worker)
    task = await ask(engine)
    await ask(engine, task_id=task.id)
    assert len(await bodies(engine, task.id, "state")) == 1


async def test_the_state_of_a_lost_run_is_lost(stage: Stage) -> None:
    """The process dies after the worker set the state and before its question: no approval is skipped."""
    seen: list[Any] = []
    dying = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        seen.append((ctx.user_text, ctx.state))
        if ctx.state is None:
            ctx.state = {"asked": True}
            if len(seen) == 1:
                dying.set()
                await asyncio.sleep(60)
            await ctx.request_input("Pay?")
            return
        await ctx.complete("paid")

    first = await stage.engine(worker)
    sent = await first.tasks.send(message("pay 40"))
    await dying.wait()
    await stage.crash(first)
    second = await stage.engine(worker)
    await until(lambda: len(seen) == 2)
    asked = await answer(second, sent)
    assert asked.status.state is TaskState.input_required
    assert seen == [("pay 40", None), ("pay 40", None)]
    done = await ask(second, "yes", task_id=asked.id)
    assert done.status.state is TaskState.completed
    assert seen[-1] == ("yes", {"asked": True})


async def test_the_state_survives_a_snapshot(stage: Stage) -> None:
    async def worker(ctx: TaskContext) -> None:
        if ctx.state is None:
            await ctx.request_input(state={"a": 1})
            return
        for number in range(300):
            await ctx.emit_text_artifact(str(number), append=True)
        await ctx.send_status("much is written")
        await ctx.request_input(str(ctx.state))

    engine = await stage.engine(worker)
    task = await ask(engine)
    for _ in range(2):
        found = await ask(engine, task_id=task.id)
        assert found.status.message is not None
        assert found.status.message.text == "{'a': 1}"


async def test_a_message_that_waited_gets_the_state_of_the_previous_turn(stage: Stage) -> None:
    seen: list[Any] = []
    go = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        seen.append(ctx.state)
        await go.wait()
        ctx.state = ctx.user_text
        await ctx.complete()

    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message("first"))
    await until(lambda: seen)
    await engine.tasks.send(message("second", task_id=sent.task.task_id))
    go.set()
    await answer(engine, sent)
    await until(lambda: len(seen) == 2)
    assert seen == [None, "first"]


async def test_a_fork_keeps_the_state(stage: Stage) -> None:
    seen: list[Any] = []

    async def worker(ctx: TaskContext) -> None:
        seen.append(ctx.state)
        await ctx.request_input(state={"turns": len(seen)})

    engine = await stage.engine(worker)
    task = await ask(engine)
    await ask(engine, task_id=task.id)
    head = (await engine.tasks.load(task.id)).version
    await answer(engine, await engine.tasks.fork(task.id, head))
    assert seen == [None, {"turns": 1}, {"turns": 1}]


@pytest.mark.parametrize(
    ("state", "kind", "error"),
    [({"x": 1}, Order, InvalidValue), (object(), None, InvalidAgentResponseError)],
)
async def test_a_state_of_another_type_is_a_typed_error(
    stage: Stage, state: Any, kind: Any, error: type[Exception]
) -> None:
    raised: list[Exception] = []

    async def worker(ctx: TaskContext) -> None:
        ctx.state = state
        try:
            if kind is not None:
                ctx.state_as(kind)
            await ctx.request_input()
        except Exception as found:
            raised.append(found)
            ctx.state = None
            await ctx.complete()

    engine = await stage.engine(worker)
    assert (await ask(engine)).status.state is TaskState.completed
    assert [type(found) for found in raised] == [error]
