"""Types as an editor sees them: user code without Any, which mypy checks in strict mode.

mypy must find an error at each ``type: ignore[code]``: an unused ignore is an error too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from keelbolt.errors import InvalidTurnRunnerConfig
from keelbolt.turns import (
    DispatchContext,
    ExecutorHelpers,
    Memory,
    Message,
    Next,
    PrimitiveSet,
    TurnContext,
    TurnInput,
    TurnRunner,
    TurnScope,
    Window,
    durable_storage,
    hydrate,
    noop_storage,
)
from keelbolt.turns.callbacks import CALLBACKS, SomeCallbacks, StorageCallbacks


async def execute(ctx: DispatchContext, helpers: ExecutorHelpers) -> None:
    report = helpers.report_message("m", "hi", is_complete=True)
    await ctx.store_message(Message(id="m", role="assistant", content=report.full, created_at=0, updated_at=0))
    ctx.ack()


async def around_turn(_ctx: TurnContext, proceed: Callable[[], Next]) -> None:
    await proceed()


async def around_dispatch(_ctx: DispatchContext, proceed: Callable[[], Awaitable[None]]) -> None:
    await proceed()


def plain_store(_ctx: TurnContext, _message: Message) -> None: ...


async def fetch(_ctx: TurnContext) -> list[Message]:
    return []


def of_another_kind(_ctx: TurnContext, _memory: Memory) -> None: ...


def whose(ctx: TurnContext) -> TurnScope:
    return TurnScope("acme", ctx.stash.get("thread"))


async def test_a_runner_of_a_storage() -> None:
    async with durable_storage("memory:", scope=whose) as storage:
        runner = TurnRunner(
            executor_callback=execute,
            **storage.callbacks(),
            unit_of_work=storage.unit_of_work,
            gate_store=storage.gates,
            progress_store=storage.progress,
            turn_input_pipeline=[hydrate("tool_calls", messages=Window(last=200)), around_turn],
            dispatch_input_pipeline=[around_dispatch],
            persistence={"tool_call": "immediate", "*": "deferred"},
        )
        short = storage.runner(executor_callback=execute, turn_input_pipeline=[hydrate("messages")], max_iterations=3)
        storage.runner(executor_callback=execute, store_message_callback=plain_store)
        for each in (runner, short):
            assert (await each.run_result(TurnInput(system_prompt="x", stash={"thread": "t"}))).ok
        result = await short.run_result(TurnInput(system_prompt="x", stash={"thread": "new"}))
        held: PrimitiveSet[Message] = result.context.turn_messages
        found: Sequence[Message] = await result.context.fetch_messages()
        assert [each.id for each in held] == [each.id for each in found] == ["m"]
        with pytest.raises(InvalidTurnRunnerConfig, match="max_iteratons is unknown"):
            storage.runner(executor_callback=execute, max_iteratons=3)  # type: ignore[call-arg]


def test_the_tables_of_shapes_agree() -> None:
    """The types for all callbacks, for any callback, and the runtime table of the runner."""
    every, some = dict(StorageCallbacks.__annotations__), dict(SomeCallbacks.__annotations__)
    assert list(every) == list(some)
    assert set(every) == set(CALLBACKS)
    optional = "replace_tool_call_group_callback"
    assert every.pop(optional).__forward_arg__ == f"NotRequired[{some.pop(optional).__forward_arg__}]"
    assert every == some


async def test_custom_callbacks() -> None:
    ours = noop_storage() | {"store_message_callback": plain_store, "fetch_messages_callback": fetch}
    assert (await TurnRunner(executor_callback=execute, **ours).run_result(TurnInput(system_prompt="x"))).ok
    ours["store_message_callback"] = of_another_kind  # type: ignore[typeddict-item]
    with pytest.raises(InvalidTurnRunnerConfig, match="executor_callback is missing"):
        TurnRunner(**ours)  # type: ignore[call-arg]
    with pytest.raises(InvalidTurnRunnerConfig, match="persistance is unknown"):
        TurnRunner(executor_callback=execute, **ours, persistance="deferred")  # type: ignore[call-arg]
    with pytest.raises(InvalidTurnRunnerConfig, match="max_iterations must be an integer"):
        TurnRunner(executor_callback=execute, **ours, max_iterations="3")  # type: ignore[arg-type]
