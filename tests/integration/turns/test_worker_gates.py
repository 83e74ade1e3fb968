"""Gates of a served agent: valid answers, work that continues while the task asks, and events that wake the task."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from keelbolt.errors import TurnGateTimeout
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext
from keelbolt.turns import DispatchContext, gates, worker
from keelbolt.turns.durable import gate_records
from keelbolt.turns.durable import gates as durable_gates
from keelbolt.turns.gates import GateAnswer, read_gate_answer, reply_hint
from tests.integration.tasks.stage import Stage
from tests.integration.turns.stage import message as stored
from tests.integration.turns.test_worker import ALICE, agent, texts

YES_NO = {"type": "boolean"}
ONLY_YES = {"const": True}


class HeldByTurn:
    """A value in the stash of a turn, which usually copies its values."""

    def __deepcopy__(self, _memo: dict[int, Any]) -> HeldByTurn:
        return self


@pytest.fixture
async def stage(url: str) -> AsyncIterator[Stage]:
    async with Stage(url) as stage:
        yield stage


@pytest.fixture
async def memory() -> AsyncIterator[Stage]:
    async with Stage("memory:") as stage:
        yield stage


async def test_a_message_before_the_question_is_no_approval(stage: Stage) -> None:
    """A message that is sent during the turn, before the gate opens, stays in the thread, and the task asks."""
    go, seen = asyncio.Event(), []

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        await go.wait()
        paid = await ctx.wait_for(reason="May I pay 1000?", schema=YES_NO)
        seen.append([str(each.content) for each in ctx.incoming])
        await ctx.store_message(stored("done", f"paid: {paid}", role="assistant"))
        ctx.ack()

    one = await agent(stage, execute)
    sent = await one.send("buy it")
    task = await one.engine.store.task(sent.task)
    await one.send("yes, and please hurry", task=task)
    go.set()
    asked = await one.look(task, TaskState.input_required)
    assert asked.status.message is not None
    assert asked.status.message.text == 'May I pay 1000?\nReply "yes" or "no".'
    (gate,) = await one.storage.gates.list()
    assert not gate.settled
    done = await one.say("no", task=asked)
    assert (done.status.state, texts(done)["message-1-done"]) == (TaskState.completed, "paid: False")
    rows = [row["data"] async for row in one.storage.export(ALICE.partition, thread=task.context_id)]
    contents = [row["content"] for row in rows if row["role"] == "user"]
    assert contents == ["buy it", "yes, and please hurry"]
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (None, "yes", True),
        (None, "No.", False),
        (None, "no, too dear", False),
        (None, "later perhaps", "later perhaps"),
        (YES_NO, "OK!", True),
        (YES_NO, "nope", False),
        (YES_NO, "true", True),
        (ONLY_YES, "approve", True),
        ({"type": "string"}, "20261115", "20261115"),
        ({"type": "string"}, "no", "no"),
        ({"enum": ["Red", "blue"]}, "red", "Red"),
        ({"type": "integer"}, "5", 5),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a": 1}', {"a": 1}),
        ({"anyOf": [{"type": "boolean"}, {"type": "string"}]}, "yes", True),
    ],
)
def test_words_are_read_by_the_schema(schema: Any, text: str, value: Any) -> None:
    assert read_gate_answer(text, [], schema) == GateAnswer("resolve", value)


@pytest.mark.parametrize("text", ["no", "No, too dear.", "reject: too dear", "Rejected"])
def test_a_no_is_a_rejection_if_the_schema_accepts_only_yes(text: str) -> None:
    answer = read_gate_answer(text, [], ONLY_YES)
    assert (answer.verb, bool(answer.reason)) == ("reject", True)


@pytest.mark.parametrize(
    ("schema", "words"),
    [(None, '"yes", "no"'), (ONLY_YES, '"yes" or "no"'), ({"enum": ["a", 1]}, "a, 1"), ({"type": "string"}, "")],
)
def test_the_question_has_a_reply_hint(schema: Any, words: str) -> None:
    assert words in reply_hint(schema)
    assert bool(words) == bool(reply_hint(schema))


async def test_an_uncaught_rejection_is_not_a_failure(memory: Stage) -> None:
    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        await ctx.wait_for(reason="May I?", schema=ONLY_YES)
        ctx.ack()

    one = await agent(memory, execute)
    done = await one.say("reject: too dear", task=await one.say())
    assert done.status.state == TaskState.canceled
    assert done.status.message is not None
    assert done.status.message.text == "too dear"


async def test_siblings_of_a_gate_continue_and_run_once(stage: Stage) -> None:
    """In a `gather` of a gate and other work, the work is neither cancelled nor repeated while the task asks."""
    runs: list[str] = []

    async def work(name: str, seconds: float) -> str:
        runs.append(f"{name} began")
        await asyncio.sleep(seconds)
        runs.append(f"{name} ended")
        return name

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        found = await asyncio.gather(
            work("quick", 0.01),
            ctx.wait_for(reason="First?", id="a", schema=YES_NO),
            ctx.wait_for(reason="Second?", id="b", schema=YES_NO),
            work("slow", 0.4),
        )
        await ctx.store_message(stored("done", str(found), role="assistant"))
        ctx.ack()

    one = await agent(stage, execute)
    task = await one.say()
    assert task.status.message is not None
    assert task.status.message.text.startswith("First?")
    task = await one.say("yes", task=task)
    assert task.status.message is not None
    assert task.status.message.text.startswith("Second?")
    done = await one.say("no", task=task)
    assert texts(done)["message-1-done"] == "['quick', True, False, 'slow']"
    assert sorted(runs) == ["quick began", "quick ended", "slow began", "slow ended"]


@pytest.mark.parametrize("case", ["same process", "after a restart", "after the clock was set back"])
async def test_a_time_limit_ends_while_the_task_asks(stage: Stage, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        try:
            answer = await ctx.wait_for(reason="Well?", timeout_ms=1500)
        except TurnGateTimeout:
            answer = "too late"
        await ctx.store_message(stored("done", str(answer), role="assistant"))
        ctx.ack()

    one = await agent(stage, execute)
    task = await one.say()
    assert task.status.state == TaskState.input_required
    if case != "same process":
        await one.engine.__aexit__(None, None, None)
        if case == "after the clock was set back":
            for module in (gates, gate_records, durable_gates):
                monkeypatch.setattr(module, "now", lambda: datetime.now(UTC) - timedelta(hours=2))
        one = await agent(stage, execute)
    done = await one.look(task, TaskState.completed)
    assert texts(done)["message-1-done"] == "too late"


@pytest.mark.parametrize("parked", [True, False], ids=["same process", "after a restart"])
async def test_resolve_wakes_the_task(stage: Stage, parked: bool) -> None:
    """A call of `gates.resolve` is enough to wake the task."""

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        answer = await ctx.wait_for(reason="Well?")
        await ctx.store_message(stored("done", str(answer), role="assistant"))
        ctx.ack()

    one = await agent(stage, execute)
    task = await one.say()
    if not parked:
        await one.engine.__aexit__(None, None, None)
        one = await agent(stage, execute)
    (gate,) = await one.storage.gates.list()
    await one.storage.gates.resolve(gate.token, 7)
    done = await one.look(task, TaskState.completed)
    assert texts(done)["message-1-done"] == "7"


async def test_a_turn_that_another_process_continues_leaves_memory(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process keeps a turn in memory while its task asks, but not after another process has handled the answer.

    Only that other process acts on the answer, and no process logs an error.
    """
    monkeypatch.setattr(worker, "ENDED_SECONDS", 0.1)
    busy = asyncio.Event()
    acted: list[bool] = []
    running: weakref.WeakSet[HeldByTurn] = weakref.WeakSet()

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        if str(ctx.incoming[0].content) == "stay":
            await busy.wait()
        else:
            running.add(ctx.stash.get("held"))
            answer = await ctx.wait_for(reason="Well?", schema=YES_NO)
            acted.append(answer)
            await ctx.store_message(stored("done", str(answer), role="assistant"))
        ctx.ack()

    def stash(_task: TaskContext) -> dict[str, HeldByTurn]:
        return {"held": HeldByTurn()}

    one = await agent(stage, execute, settings={"concurrency": 1}, stash=stash)
    asked = await one.say("ask")
    assert running
    await one.send("stay")  # the first process can't take the answer
    two = await agent(stage, execute, stash=stash)
    done = await two.say("yes", task=asked)
    assert (done.status.state, texts(done)["message-1-done"]) == (TaskState.completed, "True")
    async with asyncio.timeout(60):
        while running:
            await asyncio.sleep(0.2)
            gc.collect()
    busy.set()
    assert acted == [True]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_turn_returns_to_a_process_that_has_its_earlier_run_in_memory(stage: Stage) -> None:
    """The second process answers the first gate; the first process gets the answer to the second gate."""
    busy = {"one": asyncio.Event(), "two": asyncio.Event()}
    acted: list[str] = []

    def executing(name: str) -> Any:
        async def execute(ctx: DispatchContext, _helpers: Any) -> None:
            if str(ctx.incoming[0].content) == "stay":
                await busy[name].wait()
                ctx.ack()
                return
            gate = "ab"[ctx.iteration]
            await ctx.wait_for(reason=f"{gate}?", id=gate, schema=YES_NO)
            acted.append(f"{name} {gate}")
            if gate == "b":
                ctx.ack()

        return execute

    one = await agent(stage, executing("one"), settings={"concurrency": 1})
    asked = await one.say("ask")
    await one.send("stay")
    two = await agent(stage, executing("two"), settings={"concurrency": 1})
    asked = await two.say("yes", task=asked)
    assert (asked.status.message and asked.status.message.text[:2]) == "b?"
    stay = await two.send("stay")
    busy["one"].set()
    await two.look(await two.engine.store.task(stay.task), TaskState.working)
    done = await one.say("yes", task=asked)
    assert done.status.state == TaskState.completed
    assert acted == ["two a", "one b"]
    busy["two"].set()


async def test_a_listener_that_settles_a_gate_wakes_the_asking_task(memory: Stage) -> None:
    opened: list[gates.TurnGate] = []

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        await ctx.store_message(stored("done", str(await ctx.wait_for(reason="Well?")), role="assistant"))
        ctx.ack()

    one = await agent(memory, execute)
    one.runner.on("turn_gate_open", opened.append)
    asked = await one.say()
    opened[0].resolve(7)
    done = await one.look(asked, TaskState.completed)
    assert texts(done)["message-1-done"] == "7"


async def test_the_number_of_turns_in_memory_is_limited(memory: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn that waits longest leaves memory, and its answer repeats the iteration."""
    monkeypatch.setattr(worker, "MAX_PARKED", 1)
    began: list[str] = []

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        began.append(str(ctx.incoming[0].content))
        await ctx.wait_for(reason="Well?", schema=YES_NO)
        ctx.ack()

    one = await agent(memory, execute)
    asked = [await one.say(name) for name in ("first", "second")]
    for task in reversed(asked):
        assert (await one.say("yes", task=task)).status.state == TaskState.completed
    assert began == ["first", "second", "first"]


async def test_no_message_of_a_user_is_dropped(memory: Stage) -> None:
    """A client's messageId that equals an id of the agent is not a duplicate."""

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        (asked,) = ctx.incoming
        await ctx.store_message(stored(f"agent-{ctx.turn_id}", f"re: {asked.content}", role="assistant"))
        ctx.ack()

    one = await agent(memory, execute)
    first = await one.say("one", context_id="c1", message_id="m1")
    task = await one.say("two", context_id="c1", message_id=f"agent-{first.id}.1")
    assert task.status.state == TaskState.completed
    rows = [row["data"]["content"] async for row in one.storage.export(ALICE.partition, thread="c1")]
    assert rows == ["one", "re: one", "two", "re: two"]
