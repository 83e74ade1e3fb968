"""Checks 14 to 29: an iteration is stored as a whole; a failed one stores nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from keelbolt.errors import (
    DispatchNacked,
    DispatchPipelineError,
    InvalidInitialValue,
    InvalidLlmExecutionContext,
    IterationLimitReached,
    LlmExecutionAlreadySignalled,
    LlmExecutionExecutorError,
    ReportAfterCompletion,
)
from keelbolt.turns import AbortController, Tokenizable, TurnContext
from keelbolt.turns.events import KINDS
from tests.unit.turns.stage import VALUES, Stage, message, retrievable, tool_call, turn


def ids(items: Any) -> list[str]:
    return [item.id for item in items]


async def test_check_14_one_shot() -> None:
    stage = Stage()
    passed: list[str] = []

    def step(name: str) -> Any:
        async def run(_ctx: Any, proceed: Any) -> None:
            passed.append(name)
            await proceed()

        return run

    pipelines = ("turn_input", "dispatch_input", "dispatch_output", "turn_output")
    config: dict[str, Any] = {f"{name}_pipeline": [step(name)] for name in pipelines}
    await stage.run(**config)
    assert stage.names() == ["turn_start", "dispatch_start", "iteration_start", "dispatch_end", "turn_end"]
    assert passed == ["turn_input", "dispatch_input", "turn_output"]
    end = stage.payloads("dispatch_end")[0]
    assert (end.status, end.iterations, end.error) == ("ack", 1, None)


@pytest.mark.parametrize("kind", KINDS)
async def test_check_15_deferred_writes_wait_for_the_ack(kind: str) -> None:
    stage = Stage()
    seen: list[Any] = []
    value = VALUES[kind]

    async def work(ctx: Any, _helpers: Any) -> None:
        await getattr(ctx, f"store_{kind}")(value)
        local = ctx.standing_instructions if kind == "standing_instruction" else ctx.holdings._set(kind)
        seen.append((value in local, list(stage.calls), [str(write) for write in ctx.pending]))
        ctx.ack()

    result = await stage.run(work)
    assert seen[0][:2] == (True, [])
    assert seen[0][2][0].startswith(f"store {kind} ")
    assert [name for name, _value in stage.calls] == [f"store_{kind}"]
    turn_set: Any = (
        result.context.standing_instructions if kind == "standing_instruction" else result.context.holdings._set(kind)  # type: ignore[arg-type]
    )
    assert value in turn_set
    (hooked,) = stage.payloads(f"stored_{kind}")
    assert str(hooked) == value if kind == "standing_instruction" else hooked is value
    assert stage.contexts == [result.context]


async def test_check_15_a_write_that_is_not_awaited_is_queued() -> None:
    stage = Stage()

    async def work(ctx: Any, _helpers: Any) -> None:
        ctx.store_message(message("a"))
        await asyncio.gather(ctx.store_message(message("b")), ctx.store_message(message("c")))
        await asyncio.create_task(ctx.store_message(message("d")))
        text = Tokenizable("before")
        ctx.store_standing_instruction(text)
        text.set("after")
        ctx.ack()

    await stage.run(work)
    assert stage.called() == [
        *[("store_message", key) for key in "abcd"],
        ("store_standing_instruction", "before"),
    ]


async def test_check_16_an_iteration_is_stored_before_the_next_begins() -> None:
    stage = Stage()
    stored: list[list[Any]] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        stored.append(stage.called())
        await ctx.store_message(message(str(ctx.iteration)))
        if ctx.iteration == 1:
            ctx.ack()

    await stage.run(work)
    assert stored == [[], [("store_message", "0")]]
    assert stage.called() == [("store_message", "0"), ("store_message", "1")]
    assert stage.names("iteration_start", "iteration_end") == ["iteration_start", "iteration_end", "iteration_start"]
    assert stage.log.index("store_message") < stage.log.index("iteration_end")


Fault = Callable[[Any], None]


def nack(ctx: Any) -> None:
    ctx.nack(OSError("no"))


def fail(_ctx: Any) -> None:
    raise ValueError("no")


def abort(ctx: Any) -> None:
    ctx.abort("no")


CONTROLLERS: list[AbortController] = []


def abort_turn(_ctx: Any) -> None:
    CONTROLLERS[-1].abort("no")


async def failing_second(stage: Stage, where: str, fault: Fault, **config: Any) -> Any:
    """Iteration 0 stores and succeeds; iteration 1 stores and fails at this stage."""

    def middleware(name: str) -> Any:
        async def run(ctx: Any, proceed: Any) -> None:
            await ctx.store_message(message(f"{name}{ctx.iteration}"))
            if ctx.iteration == 1 and where == name:
                fault(ctx)
            await proceed()

        return run

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_message(message(f"executor{ctx.iteration}"))
        if ctx.iteration == 1 and where == "executor":
            fault(ctx)
        if ctx.iteration == 2:
            raise AssertionError("there is no iteration 2")

    CONTROLLERS.append(AbortController())
    pipelines = {
        "dispatch_input_pipeline": [middleware("input")],
        "dispatch_output_pipeline": [middleware("output")],
    }
    runner = stage.runner(work, **pipelines, **config)
    return await runner.run_result(turn(abort_controller=CONTROLLERS[-1]))


@pytest.mark.parametrize("where", ["input", "executor", "output"])
async def test_check_17_a_nack_drops_only_its_iteration(where: str) -> None:
    stage = Stage()
    result = await failing_second(stage, where, nack)
    assert stage.called() == [("store_message", f"{name}0") for name in ("input", "executor", "output")]
    assert ids(result.context.turn_messages) == ["input0", "executor0", "output0"]
    assert (result.status, result.iterations) == ("nack", 2)
    assert len(stage.payloads("stored_message")) == 3


@pytest.mark.parametrize("where", ["input", "executor", "output"])
@pytest.mark.parametrize(
    ("fault", "status", "error"),
    [(fail, "nack", True), (abort, "aborted", False), (abort_turn, "aborted", False)],
)
async def test_check_18_every_other_failure_drops_only_its_iteration(
    where: str, fault: Fault, status: str, error: bool
) -> None:
    stage = Stage()
    result = await failing_second(stage, where, fault)
    assert stage.called() == [("store_message", f"{name}0") for name in ("input", "executor", "output")]
    assert ids(result.context.turn_messages) == ["input0", "executor0", "output0"]
    end = stage.payloads("dispatch_end")[0]
    assert (end.status, end.iterations) == (status, 2)
    assert len(stage.payloads("error")) == error
    if error:
        expected = LlmExecutionExecutorError if where == "executor" else DispatchPipelineError
        assert isinstance(end.error, expected)
        assert isinstance(end.error.__cause__, ValueError)


async def test_check_19_writes_are_made_in_the_order_of_the_calls() -> None:
    stage = Stage()

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_tool_call(tool_call("A"))
        await ctx.mutate_tool_call(tool_call("A", n=1))
        await ctx.delete_message("B")
        await ctx.store_retrievable(retrievable("C"))
        ctx.ack()

    await stage.run(work)
    assert stage.called() == [
        ("store_tool_call", "A"),
        ("mutate_tool_call", "A"),
        ("delete_message", "B"),
        ("store_retrievable", "C"),
    ]
    hooks = ["stored_tool_call", "mutated_tool_call", "deleted_message", "stored_retrievable"]
    assert stage.names(*hooks) == hooks
    assert stage.payloads("deleted_message") == ["B"]


async def test_check_22_mutate_replaces_in_place_and_the_set_stays_the_same() -> None:
    stage = Stage()
    new = message("a", "new")
    seen: list[Any] = []

    async def hydrate(ctx: TurnContext, proceed: Any) -> None:
        for key in "abac":
            ctx.turn_messages.add(message(key, "old"))
        seen.append(ctx.turn_messages)
        await proceed()

    async def work(ctx: Any, _helpers: Any) -> None:
        held = ctx.turn_messages
        await ctx.mutate_message(new)
        await ctx.mutate_message(message("d"))
        assert held is ctx.turn_messages
        assert ids(held) == ["a", "b", "c", "d"]
        assert next(iter(held)) is new
        assert ids(seen[0]) == ["a", "b", "a", "c"]
        ctx.ack()

    result = await stage.run(work, turn_input_pipeline=[hydrate])
    assert result.status == "ack", result.errors
    assert seen[0] is result.context.turn_messages
    assert ids(seen[0]) == ["a", "b", "c", "d"]


async def test_check_23_delete_shows_locally_at_once_and_in_the_turn_after_the_flush() -> None:
    stage = Stage()
    turns: list[TurnContext] = []

    async def hydrate(ctx: TurnContext, proceed: Any) -> None:
        ctx.turn_messages.add(message("a"))
        turns.append(ctx)
        await proceed()

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.delete_message("a")
        await ctx.delete_message("unknown")
        assert ids(ctx.turn_messages) == []
        assert ids(turns[0].turn_messages) == ["a"]
        ctx.ack()

    result = await stage.run(work, turn_input_pipeline=[hydrate])
    assert result.status == "ack", result.errors
    assert ids(result.context.turn_messages) == []
    assert stage.called() == [("delete_message", "a"), ("delete_message", "unknown")]
    assert stage.payloads("deleted_message") == ["a", "unknown"]


async def test_sets_can_be_changed_during_iteration() -> None:
    async def work(ctx: Any, _helpers: Any) -> None:
        for key in "abc":
            await ctx.store_message(message(key))
            await ctx.store_standing_instruction(key)
        for each in ctx.turn_messages:
            await ctx.delete_message(each.id)
        for each in ctx.standing_instructions:
            await ctx.delete_standing_instruction(each)
        assert not [*ctx.turn_messages, *ctx.standing_instructions]
        ctx.ack()

    result = await Stage().run(work)
    assert result.ok, result.errors
    assert not [*result.context.turn_messages, *result.context.standing_instructions]


async def test_check_24_tool_call_count_follows_the_checksums() -> None:
    one, other = tool_call("1", n=1), tool_call("2", n=2)
    counts: list[tuple[int, int]] = []

    async def hydrate(ctx: TurnContext, proceed: Any) -> None:
        ctx.turn_tool_calls.add(one)
        await proceed()

    async def work(ctx: Any, _helpers: Any) -> None:
        def count() -> None:
            counts.append((ctx.tool_call_count(one.checksum), ctx.tool_call_count(other.checksum)))

        count()
        await ctx.store_tool_call(tool_call("3", n=1))
        count()
        await ctx.mutate_tool_call(tool_call("3", n=2))
        count()
        await ctx.delete_tool_call("1")
        count()
        await ctx.replace_tool_call_group(["3"], [tool_call("4", n=1), tool_call("5", n=1)])
        count()
        ctx.ack()

    await Stage().run(work, turn_input_pipeline=[hydrate])
    assert counts == [(1, 0), (2, 0), (1, 1), (0, 1), (2, 0)]


async def test_check_25_a_dispatch_is_signalled_once() -> None:
    stage = Stage()
    mine = OSError("mine")

    async def work(ctx: Any, _helpers: Any) -> None:
        ctx.nack(mine)
        for again in (ctx.ack, ctx.nack):
            with pytest.raises(LlmExecutionAlreadySignalled):
                again()
        assert (ctx.is_signalled, ctx.is_acked, ctx.nack_error) == (True, False, mine)

    await stage.run(work)
    assert stage.payloads("dispatch_end")[0].error is mine
    assert stage.payloads("error") == [mine]

    generic = Stage()
    await generic.run(lambda ctx, _helpers: ctx.nack())
    assert isinstance(generic.payloads("dispatch_end")[0].error, DispatchNacked)
    result = await Stage().run(lambda ctx, _helpers: ctx.nack("no money"))
    assert str(result.errors[0]) == "no money"


async def test_check_26_on_ack() -> None:
    order: list[str] = []

    def bad() -> None:
        raise ValueError("no")

    async def work(ctx: Any, _helpers: Any) -> None:
        ctx.on_ack(lambda: order.append("first"))
        ctx.on_ack(bad)
        forget = ctx.on_ack(lambda: order.append("forgotten"))
        ctx.on_ack(lambda: order.append("last"))
        forget()
        forget()
        ctx.ack()
        order.append("after ack")

    await Stage().run(work)
    assert order == ["first", "last", "after ack"]

    async def give_up(ctx: Any, _helpers: Any) -> None:
        ctx.on_ack(lambda: order.append("nack"))
        ctx.nack()

    await Stage().run(give_up)
    assert "nack" not in order


@pytest.mark.parametrize("plain", [True, False])
async def test_check_27_an_executor_that_raises(plain: bool) -> None:
    failure = ValueError("the model is down")

    def work(_ctx: Any, _helpers: Any) -> None:
        raise failure

    async def work_later(ctx: Any, helpers: Any) -> None:
        work(ctx, helpers)

    stage = Stage()
    await stage.run(work if plain else work_later)
    (error,) = stage.payloads("error")
    assert isinstance(error, LlmExecutionExecutorError)
    assert (error.__cause__, str(error)) == (failure, "The executor raised: the model is down")
    assert stage.payloads("dispatch_end")[0].error is error
    assert stage.names("turn_end") == ["turn_end"]


async def test_check_28_stashes_are_separate() -> None:
    async def work(ctx: Any, _helpers: Any) -> None:
        assert ctx.stash.get("user.name") == "Ann"
        ctx.stash.set("user.name", "Bob")
        ctx.stash.set("new", 1)
        nested = ctx.stash.get("user")
        nested["name"] = "Eve"
        assert ctx.stash.get("user.name") == "Bob"
        ctx.ack()

    stage = Stage()
    given = {"user": {"name": "Ann"}}
    result = await stage.runner(work).run_result(turn(stash=given))
    assert result.status == "ack", result.errors
    assert result.context.stash.all() == {"user": {"name": "Ann"}}
    given["user"]["name"] = "Eve"
    assert result.context.stash.get("user.name") == "Ann"


async def test_check_29_reports_grow_over_iterations_and_end_once() -> None:
    stage = Stage()

    async def work(ctx: Any, helpers: Any) -> None:
        last = ctx.iteration == 1
        helpers.report_message("m", f"part{ctx.iteration} ", is_complete=last)
        helpers.report_thought("m", "thinking", is_complete=last)
        helpers.report_tool_call("c", **({"args": {"n": 1}} if last else {"tool": "add"}), is_complete=last)
        helpers.log.info("step", "a step", {"n": 1})  # noqa: PLE1205 - not that kind of log
        helpers.report_generation_stats(tokens=5)
        if last:
            for late in (helpers.report_message, helpers.report_thought):
                with pytest.raises(ReportAfterCompletion, match="m is already reported complete"):
                    late("m", "more")
            with pytest.raises(ReportAfterCompletion):
                helpers.report_tool_call("c", results="x")
            ctx.ack()

    result = await stage.run(work)
    assert result.status == "ack", result.errors
    first, second = stage.payloads("message")
    assert (first.full, first.delta, first.is_complete, first.completed_at) == ("part0 ", "part0 ", False, None)
    assert (second.full, second.delta, second.is_complete) == ("part0 part1 ", "part1 ", True)
    assert (second.created_at, second.completed_at) == (first.created_at, second.updated_at)
    assert [report.full for report in stage.payloads("thought")] == ["thinking", "thinkingthinking"]
    announced, done = stage.payloads("tool_call")
    assert (announced.checksum, done.checksum) == (None, tool_call("c", n=1).checksum)
    assert (stage.payloads("log")[0].level, stage.payloads("log")[1].iteration) == ("info", 1)
    assert stage.payloads("generation_stats")[0].stats == {"tokens": 5}
    assert stage.calls == []


async def test_max_iterations_ends_a_loop_and_keeps_stored_iterations() -> None:
    stage = Stage()

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_message(message(str(ctx.iteration)))

    result = await stage.run(work, max_iterations=3)
    (error,) = result.errors
    assert isinstance(error, IterationLimitReached)
    assert (error.limit, result.iterations, result.status) == (3, 3, "nack")
    assert ids(result.context.turn_messages) == ["0", "1", "2"]


async def test_an_executor_that_never_waits_can_be_aborted() -> None:
    controller = AbortController()
    asyncio.get_running_loop().call_later(0.01, controller.abort)
    runner = Stage().runner(lambda _ctx, _helpers: None, max_iterations=None)
    result = await runner.run_result(turn(abort_controller=controller))
    assert (result.status, result.errors) == ("aborted", ())


async def test_an_ack_that_is_aborted_before_it_is_stored_is_an_abort() -> None:
    stage = Stage()

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_message(message())
        ctx.ack()
        ctx.abort()

    result = await stage.run(work)
    assert (stage.calls, result.status) == ([], "aborted")


async def test_an_aborted_turn_aborts_its_dispatch_but_not_the_reverse() -> None:
    ran: list[Any] = []

    async def after(_ctx: Any, proceed: Any) -> None:
        ran.append("output")
        await proceed()

    await Stage().run(lambda ctx, _helpers: ctx.abort(), turn_output_pipeline=[after])
    assert ran == ["output"]

    controller = AbortController()

    def work(ctx: Any, _helpers: Any) -> None:
        controller.abort("why")
        ran.append((ctx.aborted, ctx.abort_signal.reason))

    await Stage().runner(work, turn_output_pipeline=[after]).run(turn(abort_controller=controller))
    assert ran == ["output", (True, "why")]


async def test_invalid_writes_raise_at_the_call() -> None:
    wrong: list[Any] = [
        ("store_message", "text", "takes a Message, not str"),
        ("mutate_memory", message(), "takes a Memory, not Message"),
        ("delete_thought", 5, "takes the id"),
        ("delete_message", message(), "takes the id"),
        ("store_standing_instruction", "", "non-empty"),
    ]

    async def work(ctx: Any, _helpers: Any) -> None:
        for method, value, words in wrong:
            with pytest.raises(InvalidInitialValue, match=words):
                await getattr(ctx, method)(value)
        with pytest.raises(InvalidInitialValue):
            await ctx.replace_tool_call_group("c", [])
        assert ctx.pending == ()
        ctx.ack()

    result = await Stage().run(work)
    assert result.status == "ack", result.errors


async def test_writes_after_the_end_raise() -> None:
    kept: list[Any] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        kept.append(ctx)
        ctx.ack()

    await Stage().run(work)
    with pytest.raises(InvalidLlmExecutionContext, match="has ended"):
        kept[0].store_message(message())
