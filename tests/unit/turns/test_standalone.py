"""A dispatch without a turn."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.errors import (
    InvalidLlmDispatchInput,
    InvalidLlmExecutionContext,
    LlmExecutionExecutorError,
    PipelineShortCircuited,
)
from keelbolt.turns import AbortController, DispatchContext, DispatchRunner, RawDispatch
from tests.unit.turns.stage import acknowledge, message, tool_call


def raw(**fields: Any) -> RawDispatch:
    return RawDispatch(**{"system_prompt": "Be kind.", **fields})


async def test_a_raw_dispatch_runs_with_hooks_and_without_storage() -> None:
    events: list[tuple[str, Any]] = []
    counts: list[int] = []
    call = tool_call("c", n=1)
    new = message("new")

    async def work(ctx: DispatchContext, helpers: Any) -> None:
        assert (ctx.stash.get("a"), ctx.turn_id) == (1, ctx.dispatch_id)
        counts.append(ctx.tool_call_count(call.checksum))
        assert await ctx.fetch_messages() == []
        await ctx.store_message(new)
        await ctx.delete_standing_instruction("old")
        helpers.report_message("r", "hi", is_complete=True)
        with pytest.raises(InvalidLlmExecutionContext, match="store_media_bytes_callback"):
            await ctx.store_media_bytes("a", b"x")
        ctx.ack()

    def hook(name: str) -> Any:
        return lambda payload: events.append((name, payload))

    names = ("stored_message", "deleted_standing_instruction", "message")
    runner = DispatchRunner(executor_callback=work)
    reports: list[Any] = []
    runner.observe("dispatch_end", reports.append)
    runner.on("message", reports.append)
    end = await runner.dispatch(
        raw=raw(
            stash={"a": 1}, tool_calls=[call], standing_instructions=["old"], hooks={name: hook(name) for name in names}
        )
    )
    assert (end.status, counts, len(reports)) == ("ack", [1], 2)
    assert [name for name, _payload in events] == ["message", "stored_message", "deleted_standing_instruction"]
    assert events[1][1] is new
    assert str(events[2][1]) == "old"


async def test_callbacks_get_the_raw_context() -> None:
    calls: list[Any] = []

    async def work(ctx: DispatchContext, _helpers: Any) -> None:
        await ctx.store_message(message("m"))
        assert calls == []
        ctx.ack()

    def store(ctx: Any, value: Any) -> None:
        calls.append((ctx, value.id))

    await DispatchRunner(executor_callback=work).dispatch(raw=raw(callbacks={"store_message_callback": store}))
    assert [(type(ctx), key) for ctx, key in calls] == [(DispatchContext, "m")]


async def test_a_group_is_replaced_one_by_one_without_a_group_callback() -> None:
    calls: list[Any] = []

    async def work(ctx: DispatchContext, _helpers: Any) -> None:
        await ctx.replace_tool_call_group(["old"], [tool_call("new")])
        ctx.ack()

    def delete(_ctx: Any, key: str) -> None:
        calls.append(("delete", key))

    def store(_ctx: Any, value: Any) -> None:
        calls.append(("store", value.id))

    singly = {"delete_tool_call_callback": delete, "store_tool_call_callback": store}
    runner = DispatchRunner(executor_callback=work)
    await runner.dispatch(raw=raw(callbacks=singly))
    assert calls == [("delete", "old"), ("store", "new")]
    await runner.dispatch(
        raw=raw(callbacks={**singly, "replace_tool_call_group_callback": lambda _ctx, ids, _new: calls.append(ids)})
    )
    assert calls[2:] == [("old",)]


async def test_errors_are_emitted_once_and_raised() -> None:
    errors: list[Any] = []

    def fail(_ctx: Any, _helpers: Any) -> None:
        raise ValueError("no")

    runner = DispatchRunner(executor_callback=fail)
    runner.observe("error", errors.append)
    with pytest.raises(LlmExecutionExecutorError) as raised:
        await runner.dispatch(raw=raw())
    assert errors == [raised.value]

    stuck = DispatchRunner(executor_callback=acknowledge, dispatch_input_pipeline=[lambda _ctx, _proceed: None])
    with pytest.raises(PipelineShortCircuited, match="dispatch-input"):
        await stuck.dispatch(raw=raw())


async def test_an_aborted_controller_is_noticed() -> None:
    controller = AbortController()
    controller.abort("before")
    end = await DispatchRunner(executor_callback=acknowledge).dispatch(raw=raw(abort_controller=controller))
    assert (end.status, end.iterations) == ("aborted", 0)


async def test_wrong_input_is_refused() -> None:
    runner = DispatchRunner(executor_callback=acknowledge)
    wrong: list[dict[str, Any]] = [{}, {"source": object()}, {"raw": {}}, {"source": object(), "raw": raw()}]
    for arguments in wrong:
        with pytest.raises(InvalidLlmDispatchInput):
            await runner.dispatch(**arguments)
    with pytest.raises(InvalidLlmDispatchInput, match=r"only dispatch\(\)"):
        DispatchContext(raw())  # type: ignore[arg-type]
    with pytest.raises(InvalidLlmDispatchInput, match=r"executor_callback is missing.*max_iterations"):
        DispatchRunner(executor_callback=None, max_iterations=-1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"system_prompt": ""}, "system_prompt"),
        ({"standing_instructions": "x"}, "standing_instructions"),
        ({"stash": []}, "stash"),
        ({"messages": ["x"]}, "messages must be a list of Message"),
        ({"memories": 5}, "memories must be a list of Memory"),
        ({"tool_calls": [message()]}, "tool_calls must be a list of ToolCall"),
        ({"tools": ["x"]}, "tools[0]"),
        ({"callbacks": {"store_message_callback": lambda _ctx: None}}, "it must take 2"),
        ({"callbacks": {"store_mesage_callback": lambda _ctx, _v: None}}, "unknown"),
        ({"callbacks": []}, "callbacks must be a dict"),
        ({"hooks": {"stored_mesage": print}}, "unknown name 'stored_mesage'"),
        ({"hooks": {"stored_message": 5}}, "must be a function"),
        ({"wait_for": 5}, "wait_for"),
        ({"abort_controller": 5}, "abort_controller"),
    ],
)
async def test_a_wrong_raw_context_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidLlmExecutionContext) as refused:
        await DispatchRunner(executor_callback=acknowledge).dispatch(raw=raw(**fields))
    assert words in str(refused.value)
