"""Checks 5 to 13: a turn starts empty, runs its pipelines, and ends exactly once on every path."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from keelbolt.errors import (
    InputPipelineError,
    InvalidTurnContext,
    IterationLimitReached,
    OutputPipelineError,
    PipelineShortCircuited,
    ToolDownstreamError,
)
from keelbolt.turns import AbortController, Tokenizable, Tool, TurnContext
from keelbolt.turns.callbacks import FETCHES
from keelbolt.turns.codec import PLURALS
from keelbolt.turns.events import KINDS, OPS
from tests.unit.turns.stage import NOW, VALUES, Stage, message, tool_call, turn

PIPELINES = ("turn_input_pipeline", "dispatch_input_pipeline", "dispatch_output_pipeline", "turn_output_pipeline")


async def test_check_05_a_turn_begins_empty_and_fetches_nothing() -> None:
    stage = Stage()
    fetched: list[str] = []
    found: list[Any] = []

    async def look(ctx: TurnContext, proceed: Any) -> None:
        sets: list[Any] = [
            ctx.turn_messages,
            ctx.turn_memories,
            ctx.turn_thoughts,
            ctx.turn_tool_calls,
            ctx.turn_retrievables,
        ]
        found.append(([len(each) for each in sets], ctx.standing_instructions.texts(), str(ctx.system_prompt)))
        await proceed()

    async def fetch(_ctx: Any) -> list[Any]:
        fetched.append("fetch")
        return []

    fetches = {f"{name}_callback": fetch for name in FETCHES}
    runner = stage.runner(turn_input_pipeline=[look], **fetches)
    await runner.run(turn(standing_instructions=["b", Tokenizable("a"), "c"]))
    assert found == [([0, 0, 0, 0, 0], ["b", "a", "c"], "Be kind.")]
    assert fetched == []


@pytest.mark.parametrize("name", FETCHES)
@pytest.mark.parametrize("plain", [True, False])
async def test_check_06_a_fetch_calls_its_callback_once_with_the_turn(name: str, plain: bool) -> None:
    given: list[Any] = []
    kinds = {f"fetch_{PLURALS[kind]}": kind for kind in PLURALS}
    rows = [VALUES[kinds.get(name, "standing_instruction")]]

    def fetch(ctx: Any) -> list[Any]:
        given.append(ctx)
        return rows

    async def fetch_later(ctx: Any) -> list[Any]:
        return fetch(ctx)

    async def execute(ctx: Any, _helpers: Any) -> None:
        assert await getattr(ctx, name)() is rows
        ctx.ack()

    contexts: list[Any] = []

    async def ask(ctx: TurnContext, proceed: Any) -> None:
        contexts.append(ctx)
        assert await getattr(ctx, name)() is rows
        await proceed()

    await Stage().run(execute, turn_input_pipeline=[ask], **{f"{name}_callback": fetch if plain else fetch_later})
    assert given == [contexts[0], contexts[0]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", OPS)
async def test_check_07_a_write_of_the_turn_calls_its_callback(op: str, kind: str) -> None:
    stage = Stage()
    value = "id" if op == "delete" and kind != "standing_instruction" else VALUES[kind]
    answers: list[Any] = []

    async def write(ctx: TurnContext, proceed: Any) -> None:
        answers.extend((await getattr(ctx, f"{op}_{kind}")(value), ctx))
        assert not [*ctx.turn_messages, *ctx.turn_memories, *ctx.turn_thoughts, *ctx.standing_instructions]
        assert not [*ctx.turn_tool_calls, *ctx.turn_retrievables]
        await proceed()

    await stage.run(turn_input_pipeline=[write])
    assert answers[0] == f"{op}_{kind}"
    assert len(stage.calls) == 1
    assert stage.calls[0][0] == f"{op}_{kind}"
    assert stage.calls[0][1] is value
    assert stage.contexts == [answers[1]]
    assert not [name for name in stage.names() if name.startswith(("stored", "mutated", "deleted"))]

    failing = Stage()
    callback = failing.recorder(f"{op}_{kind}_callback", fail=lambda _value: True)
    result = await failing.run(turn_input_pipeline=[write], **{f"{op}_{kind}_callback": callback})
    assert isinstance(result.errors[0].__cause__, OSError)


@pytest.mark.parametrize(
    "fields",
    [
        {"system_prompt": ""},
        {"system_prompt": None},
        {"system_prompt": Tokenizable("")},
        {"standing_instructions": "be kind"},
        {"standing_instructions": [""]},
        {"standing_instructions": [5]},
        {"standing_instructions": None},
        {"stash": [1]},
        {"stash": {1: 2}},
        {"abort_controller": asyncio},
    ],
)
async def test_check_08_a_wrong_input_is_raised_before_the_turn_starts(fields: dict[str, Any]) -> None:
    stage = Stage()
    runner = stage.runner()
    with pytest.raises(InvalidTurnContext) as refused:
        await runner.run(turn(**fields))
    assert next(iter(fields)) in str(refused.value)
    with pytest.raises(InvalidTurnContext, match="TurnInput, not dict"):
        await runner.run({"system_prompt": "x"})  # type: ignore[arg-type]
    assert stage.events == []


async def test_check_09_a_runner_runs_turns_in_sequence_and_concurrently() -> None:
    stage = Stage()
    passed: list[str] = []

    def step(name: str) -> Any:
        async def run(_ctx: Any, proceed: Any) -> None:
            passed.append(name)
            await proceed()

        return run

    def work(ctx: Any, _helpers: Any) -> None:
        if ctx.iteration == 1:
            ctx.ack()

    runner = stage.runner(work, **{name: [step(name)] for name in PIPELINES})
    for _ in range(3):
        await runner.run(turn())
    assert {name: passed.count(name) for name in PIPELINES} == {
        "turn_input_pipeline": 3,
        "dispatch_input_pipeline": 6,
        "dispatch_output_pipeline": 3,  # the acknowledged iteration skips it
        "turn_output_pipeline": 3,
    }

    both = asyncio.Barrier(2)
    seen: dict[str, Any] = {}
    extra = Tool(name="extra", description="d", input_schema={"type": "object"}, handler=lambda _a, _c, _m: "")

    async def enter(ctx: TurnContext, proceed: Any) -> None:
        name = ctx.stash.get("name")
        ctx.turn_messages.add(message(name))
        ctx.stash.set(f"only.{name}", 1)
        if name == "a":
            ctx.tools.register(extra)
        await both.wait()
        seen[name] = ([m.id for m in ctx.turn_messages], ctx.stash.get("only"), len(ctx.tools))
        await proceed()

    runner = stage.runner(turn_input_pipeline=[enter])
    await asyncio.gather(*(runner.run(turn(stash={"name": name})) for name in "ab"))
    assert seen == {"a": (["a"], {"a": 1}, 1), "b": (["b"], {"b": 1}, 0)}


async def test_check_10_middleware_that_raises_ends_the_turn_with_one_event() -> None:
    stage = Stage()
    failure = ValueError("no")

    async def fail(_ctx: Any, _next: Any) -> None:
        raise failure

    runner = stage.runner(turn_input_pipeline=[fail])
    answer: object = await asyncio.ensure_future(runner.run(turn()))
    assert answer is None
    (error,) = stage.payloads("error")
    assert (type(error), error.code, error.__cause__) == (InputPipelineError, "E_INPUT_PIPELINE_ERROR", failure)
    assert stage.names() == ["turn_start", "error", "turn_end"]

    stage = Stage()
    result = await stage.run(turn_output_pipeline=[fail])
    assert isinstance(stage.payloads("error")[0], OutputPipelineError)
    assert (result.status, result.ok, result.errors[0].__cause__) == ("failed", False, failure)
    assert stage.names("turn_end", "error", "dispatch_end") == ["dispatch_end", "error", "turn_end"]


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("forget", ["call", "await"])
async def test_check_11_a_missing_next_is_reported_with_its_pipeline(pipeline: str, forget: str) -> None:
    def work(ctx: Any, _helpers: Any) -> None:
        if pipeline != "dispatch_output_pipeline" or ctx.iteration:
            ctx.ack()

    async def stop(_ctx: Any, proceed: Any) -> None:
        if forget == "await":
            proceed()

    stage = Stage()
    await stage.run(work, **{pipeline: [stop]})
    (error,) = stage.payloads("error")
    assert isinstance(error, PipelineShortCircuited)
    assert error.pipeline == pipeline.removesuffix("_pipeline").replace("_", "-")
    assert error.pipeline in str(error)
    assert stage.names("turn_end") == ["turn_end"]


@pytest.mark.parametrize("pipeline", PIPELINES)
async def test_check_11_an_abort_instead_of_next_is_not_an_error(pipeline: str) -> None:
    def work(ctx: Any, _helpers: Any) -> None:
        if pipeline != "dispatch_output_pipeline" or ctx.iteration:
            ctx.ack()

    async def refuse(ctx: Any, _next: Any) -> None:
        ctx.abort("not today")

    stage = Stage()
    result = await stage.run(work, **{pipeline: [refuse]})
    assert stage.payloads("error") == []
    assert result.errors == ()
    assert stage.names("turn_end") == ["turn_end"]


async def test_check_12_after_an_abort_bodies_are_skipped_and_the_rest_unwinds() -> None:
    ran: list[str] = []

    async def first(ctx: Any, proceed: Any) -> None:
        ctx.abort()
        await proceed()
        ran.append("first after")

    async def second(_ctx: Any, proceed: Any) -> None:
        ran.append("second")
        await proceed()

    stage = Stage()
    result = await stage.run(turn_input_pipeline=[first, second])
    assert ran == ["first after"]
    assert stage.names() == ["turn_start", "turn_end"]
    assert result.status == "aborted"


@pytest.mark.parametrize("where", ["executor", "callback", "input", "gate"])
async def test_check_13_cancelling_drops_queued_writes_and_ends_the_turn(where: str) -> None:
    stage = Stage()
    hanging = asyncio.Event()

    async def hang(*_anything: Any) -> None:
        hanging.set()
        await asyncio.Event().wait()

    async def hanging_callback(_ctx: Any, _value: Any) -> None:
        await hang()

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_message(message())
        if where == "executor":
            await hang()
        if where == "gate":
            hanging.set()
            await ctx.wait_for(reason="never")
        ctx.ack()

    async def stuck(_ctx: Any, _next: Any) -> None:
        await hang()

    changes: dict[str, Any] = {"store_message_callback": hanging_callback} if where == "callback" else {}
    runner = stage.runner(work, turn_input_pipeline=[stuck] if where == "input" else [], **changes)
    running = asyncio.ensure_future(runner.run(turn()))
    await hanging.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stage.calls == []
    assert stage.names("turn_end", "error") == ["turn_end"]
    if where != "input":
        assert stage.payloads("dispatch_end")[0].status == "aborted"
    if where == "gate":
        assert stage.payloads("turn_gate_closed")[0].result == "aborted"


@pytest.mark.parametrize(
    "where", ["executor", "turn_input_pipeline", "dispatch_output_pipeline", "deferred", "immediate", "tool"]
)
async def test_the_cancellation_of_an_awaited_task_is_an_error(where: str) -> None:
    """A task that the executor awaits was cancelled; the turn was not."""
    stage = Stage()

    async def wait(_ctx: Any, *_rest: Any) -> None:
        gone = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(gone.cancel)
        await gone

    async def store(ctx: Any, _value: Any) -> None:
        await wait(ctx)

    async def call(args: Any, _ctx: Any, _meta: Any) -> str:
        await wait(args)
        return "never"

    async def work(ctx: Any, _helpers: Any) -> None:
        if where in {"deferred", "immediate"}:
            await ctx.store_message(message())
        if where == "tool":
            await ctx.tools.get("wait").executor(ctx)({})

    config: dict[str, Any] = {where: [wait]} if where.endswith("pipeline") else {}
    if where in {"deferred", "immediate"}:
        config = {"persistence": where, "store_message_callback": store}
    if where == "tool":
        config["tools"] = [Tool(name="wait", description="w", input_schema={"type": "object"}, handler=call)]
    result = await stage.run(wait if where == "executor" else work, **config)
    (error,) = result.errors
    cause = error.__cause__
    if where == "tool":
        assert isinstance(cause, ToolDownstreamError)
        cause = cause.__cause__
    assert isinstance(cause, asyncio.CancelledError)
    assert (stage.payloads("error"), stage.names("turn_end")) == ([error], ["turn_end"])


async def test_a_turn_copies_its_texts() -> None:
    """Two turns with the same input share no text, and a queued text does not change."""
    prompt, rule = Tokenizable("prompt"), Tokenizable("rule")
    stage = Stage()

    async def change(ctx: TurnContext, proceed: Any) -> None:
        ctx.system_prompt.set("changed")
        for text in ctx.standing_instructions:
            text.set("changed")
        await proceed()

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_standing_instruction("said")
        for text in ctx.standing_instructions:
            text.set("changed afterwards")
        ctx.ack()

    runner = stage.runner(work, turn_input_pipeline=[change])
    result = await runner.run_result(turn(system_prompt=prompt, standing_instructions=[rule]))
    assert (str(prompt), str(rule)) == ("prompt", "rule")
    assert stage.called() == [("store_standing_instruction", "said")]
    assert result.context.standing_instructions.texts() == ["changed", "said"]


async def test_an_aborted_controller_skips_everything() -> None:
    stage = Stage()
    controller = AbortController()
    controller.abort("too late")
    ran: list[str] = []

    async def step(_ctx: Any, proceed: Any) -> None:
        ran.append("step")
        await proceed()

    runner = stage.runner(turn_input_pipeline=[step])
    result = await runner.run_result(turn(abort_controller=controller))
    assert (ran, stage.names(), result.status) == ([], ["turn_start", "turn_end"], "aborted")


async def test_errors_are_caught_at_their_level_and_next_works_once() -> None:
    ran: list[str] = []

    async def outer(_ctx: Any, proceed: Any) -> None:
        await proceed()
        await proceed()
        ran.append("outer after")

    async def inner(_ctx: Any, _next: Any) -> None:
        ran.append("inner")
        raise ValueError("no")

    stage = Stage()
    await stage.run(turn_input_pipeline=[outer, inner])
    assert ran == ["inner", "outer after"]
    assert stage.names("error", "warning") == ["warning", "error"]
    assert "twice" in stage.payloads("warning")[0].message


async def test_plain_middleware_can_return_next() -> None:
    stage = Stage()
    result = await stage.run(turn_input_pipeline=[lambda _ctx, proceed: proceed()])
    assert result.ok


async def test_middleware_can_limit_the_time_of_inner_middleware() -> None:
    async def as_task(_ctx: Any, proceed: Any) -> None:
        await asyncio.create_task(proceed())

    async def limited(_ctx: Any, proceed: Any) -> None:
        async with asyncio.timeout(0.01):
            await proceed()

    async def hang(_ctx: Any, _proceed: Any) -> None:
        await asyncio.Event().wait()

    assert (await Stage().run(turn_input_pipeline=[as_task, as_task])).ok
    result = await Stage().run(turn_input_pipeline=[as_task, limited, hang])
    assert isinstance(result.errors[0].__cause__, TimeoutError)


async def test_a_turn_leaves_no_tasks_or_listeners() -> None:
    controller = AbortController()

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.wait_for(reason="ok?")
        ctx.ack()

    runner = Stage().runner(work)
    runner.observe("turn_gate_open", lambda gate: gate.resolve())
    before = asyncio.all_tasks()
    for _ in range(3):
        assert (await runner.run_result(turn(abort_controller=controller))).ok
    assert controller.signal._listeners == {}
    assert asyncio.all_tasks() == before


async def test_listeners_never_change_a_turn() -> None:
    stage = Stage()
    runner = stage.runner()
    order: list[str] = []

    async def slow(_event: Any) -> None:
        await asyncio.sleep(0)
        order.append("slow")

    async def failing(_event: Any) -> None:
        raise ValueError("async")

    async def hanging(_event: Any) -> None:
        await asyncio.Event().wait()

    def bad(_event: Any) -> None:
        raise ValueError("plain")

    runner = stage.runner(listener_timeout_seconds=0.01)
    for listener in (bad, slow, failing, hanging):
        runner.observe("dispatch_start", listener)
    runner.observe("turn_end", lambda _event: order.append("end"))
    once: list[Any] = []
    runner.observe_once("turn_start", once.append)
    stop = runner.observe("turn_start", once.append)
    stop()
    other: list[Any] = []
    runner.observe("turn_start", other.append)
    runner.unobserve("turn_start", other.append)
    assert (await runner.run_result(turn())).ok
    await runner.run(turn())
    assert order == ["slow", "end", "slow", "end"]
    assert (len(once), other) == (1, [])
    with pytest.raises(ValueError, match="unknown event 'mesage'"):
        runner.on("mesage", print)
    with pytest.raises(TypeError, match="a function"):
        runner.on("message", "print")  # type: ignore[arg-type]


async def test_a_result_has_the_sets_of_the_turn() -> None:
    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_message(message("a"))
        if ctx.iteration == 1:
            ctx.ack()

    result = await Stage().run(work)
    assert (result.status, result.iterations, result.errors) == ("ack", 2, ())
    assert [item.id for item in result.context.turn_messages] == ["a"], "stored again, it is there once"
    assert result.turn_id == result.context.id
    assert result.started_at <= result.ended_at


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (None, "returned None; return a list"),
        ([{"id": "a"}], r"make them with Message\(\*\*row\)"),
        ("text", "returned str"),
    ],
)
async def test_a_fetch_of_a_wrong_type_is_explained(rows: Any, words: str) -> None:
    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.fetch_messages()

    async def fetch(_ctx: Any) -> Any:
        return rows

    result = await Stage().run(work, fetch_messages_callback=fetch)
    assert result.status == "nack"
    assert re.search(words, str(result.errors[0]))


async def test_a_write_of_the_turn_takes_effect_when_called() -> None:
    """The call need not be awaited; its error fails the turn."""
    stored: list[str] = []

    async def store(_ctx: Any, value: Any) -> None:
        await asyncio.sleep(0)
        if value.id == "bad":
            raise OSError("disk full")
        stored.append(value.id)

    async def before(ctx: Any, proceed: Any) -> None:
        ctx.store_message(message("good"))
        ctx.store_message(message("bad"))
        await proceed()

    result = await Stage().run(turn_input_pipeline=[before], store_message_callback=store)
    assert stored == ["good"]
    assert (result.status, "disk full" in str(result.errors[0])) == ("failed", True)


async def test_a_failed_turn_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def work(_ctx: Any, _helpers: Any) -> None:
        raise KeyError("rates")

    await Stage().run(work)
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert re.search(r"turn .* failed: .*rates.* \[KeyError \(test_turns.py:\d+\)\]", line.getMessage())


async def test_an_executor_without_a_signal_causes_a_warning_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def work(_ctx: Any, _helpers: Any) -> None:
        calls.append(1)

    result = await Stage().run(work)
    assert isinstance(result.errors[0], IterationLimitReached)
    assert len(calls) == 100
    (warning,) = [record.getMessage() for record in caplog.records if "without ctx.ack()" in record.getMessage()]
    assert "two iterations in a row wrote nothing" in warning


async def test_an_executor_that_repeats_its_writes_causes_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_message(message(f"answer-{ctx.iteration}", "Hello"))
        if ctx.iteration == 5:
            ctx.ack()

    await Stage().run(work)
    (warning,) = [record.getMessage() for record in caplog.records if "without ctx.ack()" in record.getMessage()]
    assert "two iterations in a row wrote the same" in warning


async def test_iterations_with_progress_cause_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Each iteration writes a new value, calls a tool, or waits for one."""

    async def work(ctx: Any, _helpers: Any) -> None:
        match ctx.iteration:
            case 0 | 1:
                await ctx.store_message(message(f"chapter-{ctx.iteration}", f"Chapter {ctx.iteration}"))
            case 2 | 3:  # repeats the tool call
                await ctx.store_tool_call(tool_call(f"call-{ctx.iteration}").completed("5", at=NOW))
            case 4:
                await ctx.store_tool_call(tool_call("slow"))
            case 5 | 6:
                pass  # waits for the tool
            case _:
                ctx.ack()

    result = await Stage().run(work)
    assert result.status == "ack"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_text_instructions_reach_callbacks_as_text() -> None:
    found: list[Any] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_standing_instruction("be brief")
        ctx.ack()

    async def store(_ctx: Any, value: Any) -> None:
        found.append(value)

    await Stage().run(work, store_standing_instruction_callback=store)
    assert found == ["be brief"]
    assert isinstance(found[0], str)


async def test_own_tool_calls_are_those_of_this_turn() -> None:
    """An earlier turn has a call with the same id; this turn stores, changes and deletes only its own."""
    old = tool_call("call_0", turn_id="earlier")

    async def before(ctx: Any, proceed: Any) -> None:
        ctx.turn_tool_calls.add(old)
        await proceed()

    async def work(ctx: Any, _helpers: Any) -> None:
        assert len(ctx.own_tool_calls) == 0
        mine = tool_call("call_0")
        await ctx.store_tool_call(mine)
        done = mine.completed("42", at=mine.created_at)
        await ctx.mutate_tool_call(done)
        assert list(ctx.turn_tool_calls) == [old, done]
        assert list(ctx.own_tool_calls) == [done]
        await ctx.delete_tool_call("call_0")
        assert list(ctx.turn_tool_calls) == [old]
        ctx.ack()

    result = await Stage().run(work, turn_input_pipeline=[before])
    assert result.ok, result.errors
