"""A turn runner as the worker of an agent: messages in, events out, gates as questions, aborts and cancels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from keelbolt.auth.principal import Principal
from keelbolt.errors import InvalidValue, StorageUnreachable
from keelbolt.protocol.types import Part, Task, TaskState
from keelbolt.tasks import Envelope, TaskEngine
from keelbolt.turns import (
    DispatchContext,
    DurableStorage,
    ExecutorHelpers,
    Tool,
    durable_storage,
    hydrate,
    noop_storage,
    turn_worker,
)
from keelbolt.turns.gates import GateAnswer, read_gate_answer
from keelbolt.turns.relay import METADATA
from keelbolt.turns.runner import TurnRunner
from keelbolt.turns.task_turns import wake_task
from tests.integration.tasks.stage import Stage, message
from tests.integration.turns.stage import message as stored
from tests.integration.turns.stage import tool_call

ALICE = Principal(owner="alice", tenant="acme")


@pytest.fixture
async def stage(url: str) -> AsyncIterator[Stage]:
    async with Stage(url) as stage:
        yield stage


@pytest.fixture
async def memory() -> AsyncIterator[Stage]:
    async with Stage("memory:") as stage:
        yield stage


class Agent:
    """An executor in its own engine. `say` sends a message and returns the task when the task ended or asks."""

    def __init__(self, engine: TaskEngine, storage: DurableStorage, runner: TurnRunner) -> None:
        self.engine = engine
        self.storage = storage
        self.runner = runner

    async def send(self, text: str = "hello", *, task: Task | None = None, **more: Any) -> Any:
        target = {"task_id": task.id, "context_id": task.context_id} if task is not None else {}
        return await self.engine.tasks.send(message(text, **target, **more), Envelope(principal=ALICE))

    async def say(self, text: str = "hello", *, task: Task | None = None, **more: Any) -> Task:
        return await self.settled(await self.send(text, task=task, **more))

    async def settled(self, sent: Any) -> Task:
        return await self.engine.store.task(await self.engine.tasks.settled(sent, seconds=30))

    async def look(self, task: Task, *states: TaskState) -> Task:
        """Return the task when it is in one of these states."""
        async with asyncio.timeout(30):
            while True:
                now = await self.engine.tasks.load(task.id, ALICE)
                if now.view.state in states:
                    return await self.engine.store.task(now)
                await asyncio.sleep(0.01)


async def agent(
    stage: Stage,
    execute: Any,
    *,
    settings: dict[str, Any] | None = None,
    storing: dict[str, Any] | None = None,
    **options: Any,
) -> Agent:
    kernel = await stage.kernel()
    storage = durable_storage(kernel, **(storing or {}))
    runner = storage.runner(executor_callback=execute, turn_input_pipeline=[hydrate("messages", "tool_calls")])
    worker = turn_worker(runner, storage, system_prompt="Be kind.", **options)
    return Agent(await stage.engine(worker, **(settings or {})), storage, runner)


def texts(task: Task) -> dict[str, str]:
    return {artifact.artifact_id: "".join(part.text or "" for part in artifact.parts) for artifact in task.artifacts}


async def test_messages_thoughts_and_tool_calls_are_shown(stage: Stage) -> None:
    """Text is streamed as an artifact, a call is data, metadata has the kind, and the thread stores the messages."""

    async def execute(ctx: DispatchContext, helpers: ExecutorHelpers) -> None:
        if ctx.iteration == 0:
            helpers.report_thought("t", "let me see", is_complete=True)
            helpers.report_tool_call("c", tool="add", args={"a": 1})
            helpers.report_tool_call("c", results="3", is_complete=True)
            return
        assert [str(each.content) for each in ctx.turn_messages] == ["what is it?"]
        for word in ("It ", "is "):
            helpers.report_message("m", word)
            await asyncio.sleep(0)
        helpers.report_message("m", "3", is_complete=True)
        await ctx.store_message(stored("m", "It is 3", role="assistant"))
        await ctx.store_message(stored("m2", "not reported", role="assistant"))
        ctx.ack()

    one = await agent(stage, execute)
    task = await one.say("what is it?")
    assert task.status.state == TaskState.completed
    found = {artifact.artifact_id: artifact for artifact in task.artifacts}
    assert list(found) == ["thought-1-t", "tool_call-1-c", "message-1-m", "message-1-m2"]
    assert texts(task)["message-1-m"] == "It is 3"
    assert texts(task)["message-1-m2"] == "not reported"
    assert found["tool_call-1-c"].parts[0].data == {
        "tool": "add",
        "args": {"a": 1},
        "results": "3",
        "isError": False,
        "isComplete": True,
    }
    assert [(each.metadata or {})[METADATA]["kind"] for each in task.artifacts] == [
        "thought",
        "tool_call",
        "message",
        "message",
    ]
    rows = [(row["kind"], row["turn"]) async for row in one.storage.export(ALICE.partition, thread=task.context_id)]
    assert rows == [("message", f"{task.id}.1")] * 3


async def asking(ctx: DispatchContext, helpers: ExecutorHelpers) -> None:
    """Store a call that needs an approval, wait for it, then report the result."""
    if not ctx.turn_tool_calls.get("pay"):
        await ctx.store_tool_call(tool_call("pay"))
        return
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    helpers.report_message("half", "Let me as")
    try:
        answer = await ctx.wait_for(reason="How much?", payload={"to": "Ann"}, schema=schema)
    except Exception as error:
        answer = str(error)
    await ctx.store_message(stored("done", f"answer: {answer}", role="assistant"))
    ctx.ack()


ANSWERS: list[tuple[str, Any]] = [
    ("plain", {"text": '{"amount": 5}'}),
    ("data", {"parts": [Part(data={"amount": 5})]}),
    ("said", {"parts": [Part(data={"answer": "resolve", "value": {"amount": 5}})]}),
]


@pytest.mark.parametrize(("how", "answer"), ANSWERS, ids=[row[0] for row in ANSWERS])
async def test_a_gate_asks_and_the_task_continues_with_the_answer(
    stage: Stage, how: str, answer: dict[str, Any]
) -> None:
    one = await agent(stage, asking)
    task = await one.say("pay Ann")
    assert task.status.state == TaskState.input_required
    assert task.status.message is not None
    assert (task.status.message.text, task.status.message.parts[1].data["gate"]["payload"]) == (
        'How much?\nReply with JSON like {"amount": "<integer>"}, or "reject: why".',
        {"to": "Ann"},
    )
    (gate,) = await one.storage.gates.list()
    assert gate.about["taskId"] == task.id
    wrong = await one.say("five", task=task)
    assert wrong.status.state == TaskState.input_required
    assert wrong.status.message is not None
    assert "must be object" in wrong.status.message.text
    done = await one.say(task=task, **answer)
    assert (done.status.state, texts(done)["message-1-done"]) == (TaskState.completed, "answer: {'amount': 5}")
    rows = [row["id"] async for row in one.storage.export(ALICE.partition, thread=task.context_id)]
    assert len(rows) == 3, "the call, the question and the answer are stored once"
    assert how


@pytest.mark.parametrize(("text", "words"), [("reject: too much", "too much"), ("reject", "the request was declined")])
async def test_a_rejected_gate(memory: Stage, text: str, words: str) -> None:
    one = await agent(memory, asking)
    done = await one.say(text, task=await one.say("pay Ann"))
    assert texts(done)["message-1-done"] == f"answer: {words}"


async def test_a_gate_that_is_settled_elsewhere_wakes_the_task(stage: Stage) -> None:
    """An operator settles the gate, and the task continues without its user; waking it twice has no effect."""
    one = await agent(stage, asking)
    task = await one.say("pay Ann")
    (gate,) = await one.storage.gates.list()
    settled = await one.storage.gates.resolve(gate.token, {"amount": 7})
    assert await wake_task(one.engine.tasks, settled)
    done = await one.look(task, TaskState.completed)
    assert texts(done)["message-1-done"] == "answer: {'amount': 7}"
    await wake_task(one.engine.tasks, settled)
    assert await one.look(task, TaskState.completed) == done


@pytest.mark.parametrize("double_text", ["enqueue", "reject", "interrupt"])
async def test_a_gate_that_is_settled_before_the_task_asks(memory: Stage, double_text: str) -> None:
    """The task does not wait for another answer, however early this one arrives, in 20 concurrent runs."""
    opened: asyncio.Queue[str] = asyncio.Queue()
    storage = durable_storage(await memory.kernel())
    runner = storage.runner(executor_callback=asking, turn_input_pipeline=[hydrate("tool_calls")])
    runner.observe("turn_gate_open", lambda gate: opened.put_nowait(gate.token))
    worker = turn_worker(runner, storage, system_prompt="Be kind.")
    one = Agent(await memory.engine(worker, double_text=double_text), storage, runner)
    sent = [await one.send(context_id=f"c{number}") for number in range(20)]

    async def settle() -> None:
        settled = await storage.gates.resolve(await opened.get(), {"amount": 2})
        await wake_task(one.engine.tasks, settled)  # False if the task has ended without it

    await asyncio.gather(*(settle() for _ in sent))
    for each in sent:
        done = await one.look(await one.engine.store.task(each.task), TaskState.completed)
        assert texts(done)["message-1-done"] == "answer: {'amount': 2}"


async def test_a_gate_settled_by_a_listener_does_not_ask(memory: Stage) -> None:
    storage = durable_storage(await memory.kernel())
    runner = storage.runner(executor_callback=asking, turn_input_pipeline=[hydrate("tool_calls")])
    runner.observe("turn_gate_open", lambda gate: gate.resolve({"amount": 1}))
    one = Agent(await memory.engine(turn_worker(runner, storage, system_prompt="Be kind.")), storage, runner)
    task = await one.say()
    assert (task.status.state, texts(task)["message-1-done"]) == (TaskState.completed, "answer: {'amount': 1}")


@pytest.mark.parametrize("same", [True, False], ids=["same ids", "other ids"])
async def test_another_process_continues_after_a_crash(stage: Stage, same: bool) -> None:
    """Stored iterations are not repeated; an interrupted message is sent again or marked."""
    runs: list[tuple[str, int]] = []
    dying = asyncio.Event()

    def executor(name: str) -> Any:
        async def execute(ctx: DispatchContext, helpers: ExecutorHelpers) -> None:
            runs.append((name, ctx.iteration))
            content = f"m{ctx.iteration}" if same else f"{name}-m{ctx.iteration}"
            helpers.report_message(content, f"{name} says ")
            if name == "one" and ctx.iteration == 2:
                dying.set()
                await asyncio.Event().wait()
            helpers.report_message(content, content, is_complete=True)
            await ctx.store_message(stored(content, f"{name} says {content}", role="assistant"))
            if ctx.iteration == 2:
                ctx.ack()

        return execute

    first = await agent(stage, executor("one"), settings={"lease_seconds": 30.0})
    sent = await first.send("go")
    await asyncio.wait_for(dying.wait(), 30)
    while len((await first.engine.tasks.load(sent.task.task_id, ALICE)).view.artifacts) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # the beginning of the message is shown
    await stage.crash(first.engine)
    second = await agent(stage, executor("two"))
    task = await second.look(await second.engine.store.task(sent.task), TaskState.completed)
    assert runs == [("one", 0), ("one", 1), ("one", 2), ("two", 2)]
    marked = [each.artifact_id for each in task.artifacts if "discarded" in (each.metadata or {})[METADATA]]
    if same:
        assert texts(task) == {f"message-1-m{n}": f"{'one' if n < 2 else 'two'} says m{n}" for n in range(3)}
        assert marked == []
    else:
        assert texts(task)["message-1-two-m2"] == "two says two-m2"
        assert marked == ["message-1-one-m2"]


async def test_cancel_aborts_the_turn(stage: Stage) -> None:
    began = asyncio.Event()
    reasons: list[Any] = []

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        await ctx.store_message(stored("m", "half", role="assistant"))
        began.set()
        reasons.append(await ctx.abort_signal.wait())

    one = await agent(stage, execute)
    sent = await one.send()
    await asyncio.wait_for(began.wait(), 30)
    await one.engine.tasks.cancel(sent.task.task_id, ALICE)
    task = await one.look(await one.engine.store.task(sent.task), TaskState.canceled)
    assert reasons == ["the task was cancelled"]
    rows = [row["data"]["role"] async for row in one.storage.export(ALICE.partition, thread=task.context_id)]
    assert rows == ["user"], "the iteration was dropped"


ENDS: list[tuple[str, Any, TaskState, str, str | None]] = [
    ("nack", lambda ctx: ctx.nack("no such city"), TaskState.failed, "no such city", "E_DISPATCH_NACKED"),
    ("raise", lambda _ctx: 1 / 0, TaskState.failed, "The agent failed", "E_LLM_EXECUTION_EXECUTOR_ERROR"),
    ("nack with an error", lambda ctx: ctx.nack(OSError("/secret")), TaskState.failed, "The agent failed", None),
    ("abort", lambda ctx: ctx.abort("closed on sundays"), TaskState.canceled, "", None),
]


@pytest.mark.parametrize(("how", "end", "state", "words", "code"), ENDS, ids=[row[0] for row in ENDS])
async def test_ends(memory: Stage, how: str, end: Any, state: TaskState, words: str, code: str | None) -> None:
    """Users see only safe texts: the reason of a nack, and a generic message for any other failure."""
    one = await agent(memory, lambda ctx, _helpers: end(ctx) and None)
    task = await one.say()
    assert task.status.state == state
    reply = task.status.message
    assert (reply.text if reply is not None else "").startswith(words)
    assert reply is None or "secret" not in reply.text
    if code is not None:
        assert reply is not None
        assert reply.parts[1].data == {"code": code}
    assert how


async def test_storage_that_fails_does_not_fail_the_task(memory: Stage) -> None:
    """The task is released, and continues when the storage is available."""
    fails = iter([True, False])

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        if next(fails):
            raise StorageUnreachable
        ctx.ack()

    one = await agent(memory, execute)
    sent = await one.send()
    task = await one.look(await one.engine.store.task(sent.task), TaskState.completed, TaskState.failed)
    assert task.status.state == TaskState.completed


async def test_show_limits_the_reports(memory: Stage) -> None:
    async def execute(ctx: DispatchContext, helpers: ExecutorHelpers) -> None:
        helpers.report_thought("t", "secret", is_complete=True)
        helpers.report_message("m", "said", is_complete=True)
        ctx.ack()

    one = await agent(memory, execute, show=("message",))
    assert texts(await one.say()) == {"message-1-m": "said"}


async def test_tenants_are_isolated(memory: Stage) -> None:
    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        await ctx.store_message(stored(f"a-{len(ctx.turn_messages)}", "yes", role="assistant"))
        ctx.ack()

    one = await agent(memory, execute)
    await one.say("mine", context_id="c1")
    other = Principal(owner="bob")
    sent = await one.engine.tasks.send(message("his", context_id="c1"), Envelope(principal=other))
    await one.engine.tasks.settled(sent, seconds=30)
    for who in (ALICE, other):
        rows = [row["id"] async for row in one.storage.export(who.partition, thread="c1")]
        assert (len(rows), rows[1]) == (2, "a-1")


def test_a_runner_of_another_storage_is_refused() -> None:
    storage = durable_storage("memory:")
    with pytest.raises(InvalidValue, match=r"storage\.runner"):
        turn_worker(TurnRunner(executor_callback=print, **noop_storage()), storage, system_prompt="x")
    with pytest.raises(InvalidValue, match="show: unknown name"):
        turn_worker(storage.runner(executor_callback=print), storage, system_prompt="x", show=["all"])


@pytest.mark.parametrize(
    ("text", "data", "answer"),
    [
        ("approve", [], GateAnswer("resolve", True)),
        (" Approve! ", [], GateAnswer("resolve", True)),
        ("approve: but slowly", [], GateAnswer("resolve", "approve: but slowly")),
        ("Reject.", [], GateAnswer("reject", reason="the request was declined")),
        ("5", [], GateAnswer("resolve", 5)),
        ("blue", [], GateAnswer("resolve", "blue")),
        ("", [{"answer": "abort", "reason": "no"}], GateAnswer("abort", reason="no")),
        ("see", [[1]], GateAnswer("resolve", [1])),
    ],
)
def test_messages_as_gate_answers(text: str, data: list[Any], answer: GateAnswer) -> None:
    assert read_gate_answer(text, data) == answer


async def test_a_slow_plain_tool_keeps_the_lease(stage: Stage) -> None:
    """A handler that blocks for longer than the lease runs once: heartbeats continue."""
    calls: list[int] = []

    def block(_args: Any, _ctx: Any, _meta: Any) -> str:
        calls.append(1)
        time.sleep(3.0)
        return "done"

    slow = Tool(name="slow", description="Blocks.", input_schema={"type": "object"}, handler=block)

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        await slow.executor(ctx)({})
        ctx.ack()

    one = await agent(stage, execute, settings={"lease_seconds": 1.0, "heartbeat_seconds": 0.3})
    task = await one.say()
    assert (task.status.state, calls) == (TaskState.completed, [1])
