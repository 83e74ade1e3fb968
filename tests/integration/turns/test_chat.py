"""The chat executor on real storage, and as an agent: decisions, calls, approvals, errors, crashes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Generator
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from keelbolt.errors import InvalidInitialToolValue
from keelbolt.protocol.types import Task, TaskState
from keelbolt.tasks import Envelope
from keelbolt.testing.model import ScriptedModel, call
from keelbolt.turns import (
    CallRequest,
    DispatchContext,
    ExecutorHelpers,
    InMemorySpoolStore,
    Message,
    SpooledArtifact,
    ToolCall,
    TurnInput,
    TurnResult,
    TurnRunner,
    TurnScope,
    chat_executor,
    durable_storage,
    noop_storage,
    tool,
    turn_worker,
)
from keelbolt.turns.chat.executor import conversation
from tests.integration.tasks.stage import Stage, message
from tests.integration.turns.test_worker import ALICE, Agent, texts

paid: Counter[str] = Counter()


@tool
def price(item: str) -> int:
    """What one item costs.

    Args:
        item: Its name, in the singular.
    """
    return {"kettle": 30}.get(item, 10)


@tool(needs_approval="May I pay {amount} EUR to {to}?", timeout=5)
async def pay(amount: int, to: str, call_id: str) -> dict[str, Any]:
    """Pay an amount."""
    paid[call_id] += 1
    return {"paid": amount, "to": to}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    paid.clear()


@pytest.fixture
async def stage(url: str) -> AsyncIterator[Stage]:
    async with Stage(url) as stage:
        yield stage


@pytest.fixture
async def memory() -> AsyncIterator[Stage]:
    async with Stage("memory:") as stage:
        yield stage


async def chat(stage: Stage, model: Any, *tools: Any, **settings: Any) -> Agent:
    storage = durable_storage(await stage.kernel())
    runner = storage.runner(executor_callback=chat_executor(model, tools=tools or (price, pay)))
    worker = turn_worker(runner, storage, system_prompt="You are a clerk.")
    return Agent(await stage.engine(worker, **settings), storage, runner)


def shop() -> ScriptedModel:
    return ScriptedModel(
        [
            ["Let me look. ", call("price", item="kettle"), call("price", item="cup")],
            call("pay", amount=40, to="Ann"),
            "Done.",
        ]
    )


def status_text(task: Task) -> str:
    assert task.status.message is not None
    return task.status.message.text


async def test_two_tools_and_a_gate(stage: Stage) -> None:
    """The model decides, calls, asks, pays and answers; it sees every call with its result."""
    model = shop()
    one = await chat(stage, model)
    asked = await one.say("buy a kettle and a cup")
    assert status_text(asked) == 'May I pay 40 EUR to Ann?\nReply "yes" or "no".'
    done = await one.say("yes", task=asked)
    assert (done.status.state, list(paid.values())) == (TaskState.completed, [1])
    assert list(texts(done).values())[-1] == "Done."
    last = [(entry.role, entry.text, [each.name for each in entry.calls]) for entry in model.requests[-1].messages]
    assert last == [
        ("user", "buy a kettle and a cup", []),
        ("assistant", "Let me look. ", ["price", "price"]),
        ("tool", "30", []),
        ("tool", "10", []),
        ("assistant", "", ["pay"]),
        ("tool", '{"paid":40,"to":"Ann"}', []),
    ]
    more = await one.say("thanks", context_id=done.context_id)
    assert more.status.state == TaskState.failed, "the script is over"
    assert [entry.text for entry in model.requests[-1].messages][-2:] == ["Done.", "thanks"]


@pytest.mark.parametrize("answer", ["no", "reject: too dear"])
async def test_a_declined_call_is_a_result(memory: Stage, answer: str) -> None:
    one = await chat(memory, shop())
    done = await one.say(answer, task=await one.say("buy"))
    assert (done.status.state, list(texts(done).values())[-1], paid) == (TaskState.completed, "Done.", Counter())


async def test_mistakes_of_the_model_are_results(memory: Stage) -> None:
    """The model gets each error and continues: an unknown tool, invalid arguments, and a tool that raises."""

    @tool(retries=1)
    def fails() -> str:
        """Fails."""
        paid["fails"] += 1
        raise OSError("disk full")

    wrong = [call("prize"), call("price", items=1), call("fails")]
    model = ScriptedModel([wrong, "I see."])
    one = await chat(memory, model, price, fails)
    assert (await one.say("go")).status.state == TaskState.completed
    results = [entry.text for entry in model.requests[-1].messages if entry.role == "tool"]
    assert [entry.is_error for entry in model.requests[-1].messages if entry.role == "tool"] == [True] * 3
    assert "did you mean 'price'" in results[0]
    assert "items" in results[1]
    assert "disk full" in results[2]
    assert paid["fails"] == 2


async def run(model: Any, *tools: Any, text: str = "go") -> tuple[TurnResult, list[Any]]:
    reports: list[Any] = []
    runner = TurnRunner(executor_callback=chat_executor(model, tools=tools), **noop_storage())
    runner.on("tool_call", reports.append)
    incoming = [Message(id="u", role="user", content=text)]
    return await runner.run_result(TurnInput(system_prompt="Go.", incoming=incoming)), reports


@pytest.mark.parametrize(
    "arguments", ['{"item": NaN}', '{"item": 1e999}', "[" * 100_000, '{"a":' * 5000 + "1" + "}" * 5000, "[]", "{"]
)
async def test_arguments_that_are_not_json_are_a_result(arguments: str) -> None:
    """The call is stored and reported as complete, with an error that the model gets."""
    model = ScriptedModel([CallRequest("price", arguments), "I see."])
    result, reports = await run(model, price)
    assert result.ok, result.errors
    assert [entry.is_error for entry in model.requests[-1].messages if entry.role == "tool"] == [True]
    assert [(report.is_complete, report.is_error) for report in reports] == [(True, True)]


async def test_an_approval_is_not_asked_for_invalid_arguments() -> None:
    """The model gets the error; neither the function nor the text of the question sees such arguments."""
    asked: list[Any] = []

    def large_amount(args: Any) -> bool:
        asked.append(args["amount"])
        return False

    @tool(needs_approval=large_amount)
    def small(amount: int) -> str:
        """Pays."""
        return f"paid {amount}"

    @tool(needs_approval="Pay {amount:.2f}?")
    def large(amount: float) -> str:
        """Pays."""
        raise AssertionError(amount)

    calls = [call("small", amont=1), call("large", amount=[1]), call("small", amount=2)]
    model = ScriptedModel([calls, "I see."])
    result, _ = await run(model, small, large)
    assert result.ok, result.errors
    results = [(entry.text, entry.is_error) for entry in model.requests[-1].messages if entry.role == "tool"]
    assert [failed for _, failed in results] == [True, True, False]
    assert (results[2][0], asked) == ("paid 2", [2])


async def test_a_question_whose_format_does_not_fit_is_asked_in_another_form(memory: Stage) -> None:
    @tool(needs_approval="Pay {amount:.2f} to {to.name}?")
    def pays(amount: float, to: str) -> str:
        """Pays."""
        return "paid"

    one = await chat(memory, ScriptedModel([call("pays", amount=1, to="Ann"), "Done."]), pays)
    assert 'pays(amount=1, to="Ann")' in status_text(await one.say("go"))


async def test_an_async_function_behind_a_plain_decorator_is_a_tool() -> None:
    def plain(function: Any) -> Any:
        @wraps(function)
        def wrapper(*given: Any, **named: Any) -> Any:
            return function(*given, **named)

        return wrapper

    @tool
    @plain
    async def doubled(number: int) -> int:
        """Doubles."""
        return number * 2

    model = ScriptedModel([call("doubled", number=4), "Done."])
    result, _ = await run(model, doubled)
    assert result.ok, result.errors
    assert [entry.text for entry in model.requests[-1].messages if entry.role == "tool"] == ["8"]


async def test_results_are_limited_and_texts_are_included() -> None:
    """The model gets the beginning of a long result, and the text of each spooled artifact."""
    spool = InMemorySpoolStore()
    texts = [SpooledArtifact(await spool.write(name, name * 3)) for name in "ab"]
    at = datetime(2026, 1, 1, tzinfo=UTC)
    long = ToolCall(id="1", tool="x", args={}, created_at=at, is_complete=True, results="y" * 200_000)
    several = ToolCall(id="2", tool="x", args={}, created_at=at, is_complete=True, results=texts)

    async def earlier(_ctx: Any) -> list[ToolCall]:
        return [long, several]

    model = ScriptedModel(["Done."])
    storage: dict[str, Any] = {**noop_storage(), "fetch_tool_calls_callback": earlier}
    runner = TurnRunner(executor_callback=chat_executor(model), **storage)
    incoming = [Message(id="u", role="user", content="go")]
    result = await runner.run_result(TurnInput(system_prompt="Go.", incoming=incoming))
    assert result.ok, result.errors
    assert [entry.text for entry in model.requests[-1].messages if entry.role == "tool"] == ["y" * 100_000, "aaa\nbbb"]


async def test_calls_of_two_turns_with_the_same_id_stay_in_their_turns() -> None:
    """Executors of providers start at call_0 in every turn."""
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
    messages = [Message(id=f"m{n}", role="user", content=f"q{n}", created_at=times[2 * n]) for n in (0, 1)]
    calls = [
        ToolCall(
            id="call_0",
            tool="x",
            args={},
            turn_id=f"t{n}",
            created_at=times[2 * n + 1],
            is_complete=True,
            results=f"r{n}",
        )
        for n in (0, 1)
    ]
    results = {id(each): str(each.results) for each in calls}
    found = conversation(messages, calls, results, turn="now", asked=())
    assert [entry.text for entry in found if entry.text] == ["q0", "r0", "q1", "r1"]


class Place(BaseModel):
    city: str
    zip: int | None = None


async def test_tools_of_every_kind() -> None:
    """Nested models, generators with progress, plain functions in a thread, and None and dicts as results work."""

    @tool
    def plain(place: Place, times: list[int]) -> None:
        """Plain."""
        assert (place.city, times) == ("Bonn", [1, 2])
        time.sleep(0.01)

    @tool
    def steps() -> Generator[str, None, str]:
        """Yields."""
        yield "half"
        return "all"

    @tool
    async def stream(ctx: DispatchContext, helpers: ExecutorHelpers, call_id: str) -> AsyncIterator[Any]:
        """Streams."""
        assert call_id.startswith(ctx.turn_id)
        helpers.report_generation_stats(tokens=1)
        yield "one"
        yield {"two": 2}

    model = ScriptedModel(
        [[call("plain", place={"city": "Bonn"}, times=[1, 2]), call("steps"), call("stream")], "Done."]
    )
    result, reports = await run(model, plain, steps, stream)
    assert result.ok, result.errors
    assert [entry.text for entry in model.requests[1].messages if entry.role == "tool"] == ["null", "all", '{"two":2}']
    assert "half" in [report.results for report in reports]
    spec = model.requests[0].tools[0]
    assert "$defs" in spec.schema
    assert set(spec.schema["properties"]) == {"place", "times"}


async def test_a_tool_that_takes_too_long_is_an_error() -> None:
    @tool(timeout=0.05)
    async def slow() -> None:
        """Slow."""
        await asyncio.sleep(5)

    model = ScriptedModel([call("slow"), "I see."])
    result, _ = await run(model, slow)
    assert result.ok, result.errors
    assert "timed out after 0.05 s" in model.requests[1].messages[-1].text


@pytest.mark.parametrize(("kind", "attempts"), [("async", 3), ("plain", 1)])
async def test_a_plain_tool_that_timed_out_is_not_repeated(kind: str, attempts: int) -> None:
    """The thread of a plain tool can't be stopped, so a second attempt would run concurrently with the first."""
    began: list[int] = []

    @tool(name="slow", timeout=0.05, retries=2)
    async def on_loop() -> None:
        """Slow."""
        began.append(1)
        await asyncio.sleep(5)

    @tool(name="slow", timeout=0.05, retries=2)
    def in_thread() -> None:
        """Slow."""
        began.append(1)
        time.sleep(0.5)

    model = ScriptedModel([call("slow"), "I see."])
    result, _ = await run(model, on_loop if kind == "async" else in_thread)
    assert result.ok, result.errors
    assert "timed out after 0.05 s" in model.requests[1].messages[-1].text
    assert len(began) == attempts


async def test_a_plain_tool_that_raises_is_repeated() -> None:
    """A tool that raises TimeoutError itself is repeated too: its thread has ended."""
    began: list[int] = []

    @tool(timeout=30, retries=2)
    def flaky() -> str:
        """Flaky."""
        began.append(1)
        if len(began) < 3:
            raise TimeoutError("the other side is slow")
        return "done"

    model = ScriptedModel([call("flaky"), "I see."])
    result, _ = await run(model, flaky)
    assert result.ok, result.errors
    assert (model.requests[1].messages[-1].text, len(began)) == ("done", 3)


async def test_arguments_may_have_any_name() -> None:
    """Names with a meaning in pydantic, and descriptions of `Annotated` or of several lines, are kept."""
    seen: list[Any] = []

    @tool
    def odd(
        schema: str,
        model_config: Annotated[int, Field(ge=1, description="how many")],
        copy: int = 1,
        _hidden: list[str] | None = None,
    ) -> None:
        """Odd.

        Args:
            schema: The first line
                and the second.
        """
        seen.append((schema, model_config, copy, _hidden))

    about = (odd.json_schema() or {})["properties"]
    assert list(about) == ["schema", "model_config", "copy", "_hidden"]
    assert about["schema"]["description"] == "The first line and the second."
    assert (about["model_config"]["description"], about["model_config"]["minimum"]) == ("how many", 1)
    model = ScriptedModel([call("odd", schema="s", model_config=2), call("odd", schema="s", model_config=0), "Done."])
    result, _ = await run(model, odd)
    assert result.ok, result.errors
    assert seen == [("s", 2, 1, None)]
    assert "model_config" in model.requests[2].messages[-1].text


def test_tool_refuses_objects_that_are_not_functions() -> None:
    def hinted(x: int) -> None:
        """Hinted."""

    for wrong in (partial(hinted), Place, 7):
        with pytest.raises(InvalidInitialToolValue, match="takes a function or a method"):
            tool(wrong)  # type: ignore[arg-type]
    hinted.__annotations__["x"] = "Nowhere"
    with pytest.raises(InvalidInitialToolValue, match="can't be resolved"):
        tool(hinted)


def test_a_tool_needs_type_hints_and_named_parameters() -> None:
    assert price.description == "What one item costs."
    schema = price.json_schema()
    assert schema is not None
    assert schema["properties"]["item"]["description"] == "Its name, in the singular."
    with pytest.raises(InvalidInitialToolValue, match="needs a type hint"):
        tool(lambda x: x)
    with pytest.raises(InvalidInitialToolValue, match="must have names"):

        @tool
        def many(*args: int) -> None:
            """Many."""


async def test_the_turn_continues_after_each_crash(stage: Stage) -> None:
    """Without a server, the process crashes in each generation and each call; no finished step is repeated."""
    decisions: Counter[int] = Counter()

    def script(request: Any) -> Any:
        steps = sum(entry.role == "assistant" for entry in request.messages)
        decisions[steps] += 1
        if decisions[steps] == 1:
            raise asyncio.CancelledError
        return [call("price", item="kettle"), call("pay", amount=30, to="Ann")] if steps == 0 else "Done."

    kernel, result = await stage.kernel(), None
    for _ in range(4):
        async with durable_storage(kernel) as storage:
            runner = storage.runner(executor_callback=chat_executor(ScriptedModel(script), tools=[price, pay]))
            runner.on("turn_gate_open", lambda gate: gate.resolve(True))
            given = TurnInput(
                system_prompt="Go.",
                scope=TurnScope("acme", "t1"),
                turn_id="turn-1",
                incoming=[Message(id="u", role="user", content="buy")],
            )
            result = await runner.run_result(given)
            if result.ok:
                break
    assert result is not None
    assert result.ok, result.errors
    assert (list(paid.values()), decisions) == ([1], Counter({0: 2, 1: 2}))


async def test_cancel_during_a_model_call_is_quick(memory: Stage) -> None:
    model = ScriptedModel(["a very slow answer"], delay_seconds=60)
    one = await chat(memory, model)
    sent = await one.engine.tasks.send(message("go"), Envelope(principal=ALICE))
    while not model.requests:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    began = time.monotonic()
    await one.engine.tasks.cancel(sent.task.task_id, ALICE)
    await one.look(await one.engine.store.task(sent.task), TaskState.canceled)
    assert time.monotonic() - began < 3
