"""The runner with the durable adapter: the data of an iteration, and the state after a failure."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from keelbolt.errors import DispatchFlushError, InvalidValue, TurnStorageDuplicateId, TurnTakenOver
from keelbolt.turns import (
    DispatchContext,
    DurableStorage,
    ExecutorHelpers,
    Tokenizable,
    Tool,
    TopK,
    TurnContext,
    TurnInput,
    TurnResult,
    TurnRunner,
    TurnScope,
    Window,
    durable_storage,
    hydrate,
    noop_storage,
)
from keelbolt.turns.events import WRITTEN
from keelbolt.turns.primitives import SpooledArtifact
from tests.integration.turns.stage import Calls, Turn, image, memory, message, retrievable, thought, tool_call

Execute = Callable[[DispatchContext], Any]


async def run(storage: DurableStorage, execute: Execute, *middleware: Any, **options: Any) -> TurnResult:
    """Run one turn, each iteration as a unit of work."""

    async def executor(ctx: DispatchContext, _helpers: ExecutorHelpers) -> None:
        await execute(ctx)

    given: dict[str, Any] = {**storage.callbacks(), "unit_of_work": storage.unit_of_work, **options}
    runner = TurnRunner(executor_callback=executor, turn_input_pipeline=middleware, **given)
    return await runner.run_result(TurnInput(system_prompt="x", stash={"scope": TurnScope("acme", "thread-1")}))


async def test_check_33_conduits_pass_their_arguments(storage: DurableStorage) -> None:
    """Conduits get the context, the id and the same object; sets stay equal, no hook fires; all forms are readable."""
    seen: list[tuple[Any, ...]] = []
    reports: list[object] = []
    callbacks = storage.callbacks()

    async def media(ctx: TurnContext, id: str, data: Any) -> Any:  # noqa: A002
        seen.append((ctx, id, data))
        return await callbacks["store_media_bytes_callback"](ctx, id, data)  # type: ignore[misc]

    async def stream() -> AsyncIterator[bytes]:
        yield b"by"
        yield b"tes"

    forms: list[Any] = ["bytes", b"bytes", bytearray(b"bytes"), stream()]

    async def executor(ctx: DispatchContext, _helpers: ExecutorHelpers) -> None:
        for number, data in enumerate(forms):
            reader = await ctx.store_media_bytes(f"x{number}", data)
            assert b"".join([piece async for piece in reader.stream()]) == b"bytes"
        text = await ctx.store_retrievable_bytes("text", "a\nb")
        assert await text.line(1) == "b"  # type: ignore[misc]
        assert not [*ctx.turn_messages, *ctx.turn_retrievables, *ctx.pending]
        ctx.ack()

    given: dict[str, Any] = {**callbacks, "store_media_bytes_callback": media}
    runner = TurnRunner(executor_callback=executor, **given)
    for name in WRITTEN:
        runner.observe(name, reports.append)
    result = await runner.run_result(TurnInput(system_prompt="x", stash={"scope": TurnScope("acme", "t")}))
    assert result.ok, result.errors
    assert [(id, data) for _, id, data in seen] == [(f"x{number}", data) for number, data in enumerate(forms)]  # noqa: A001
    assert all(data is forms[number] and ctx is result.context for number, (ctx, _, data) in enumerate(seen))
    assert not reports


async def test_check_46_a_nacked_iteration_leaves_only_blobs_that_reap_removes(storage: DurableStorage) -> None:
    async def execute(ctx: DispatchContext) -> None:
        if ctx.iteration == 0:
            kept = await ctx.store_media_bytes("kept", b"kept")
            await ctx.store_message(message("m", attachments=[image(kept)]))
            text = await ctx.store_retrievable_bytes("kept", "kept")
            await ctx.store_retrievable(retrievable("r", SpooledArtifact(text)))
            return
        for number in range(10):
            reader = await ctx.store_media_bytes(f"lost{number}", b"%d" % number)
            await ctx.store_message(message(f"m{number}", attachments=[image(reader)]))
        ctx.nack()

    assert (await run(storage, execute)).status == "nack"
    assert (await storage.reap(older_than=0)).blobs == 10
    calls = Calls(storage.callbacks(), Turn())
    [found], [text] = await calls.fetch("message"), await calls.fetch("retrievable")
    assert await found.attachments[0].as_bytes() == b"kept"
    assert await text.content_string() == "kept"
    assert [info.id async for info in storage.blobs.media(Turn()).list()] == ["kept"]


async def test_check_20_an_iteration_that_can_not_be_stored_stores_nothing(storage: DurableStorage) -> None:
    """If one write is a duplicate, nothing is stored or shown, and the turn reports the error."""
    calls = Calls(storage.callbacks(), Turn())
    await calls.store_message(message("taken"))

    async def execute(ctx: DispatchContext) -> None:
        await ctx.store_thought(thought())
        await ctx.store_message(message("taken", "other"))
        await ctx.store_memory(memory())
        ctx.ack()

    result = await run(storage, execute)
    [error] = result.errors
    assert result.status == "nack"
    assert isinstance(error, DispatchFlushError)
    assert isinstance(error.__cause__, TurnStorageDuplicateId)
    assert error.applied == ()
    assert not [*result.context.turn_messages, *result.context.turn_thoughts]
    assert [await calls.ids(kind) for kind in ("message", "thought", "memory")] == [["taken"], [], []]


async def test_a_turn_that_is_erased_while_it_runs_ends(storage: DurableStorage) -> None:
    async def executor(ctx: DispatchContext, _helpers: ExecutorHelpers) -> None:
        await ctx.store_message(message(f"m{ctx.iteration}"))
        if ctx.iteration == 1:
            await storage.erase("acme")

    runner = storage.runner(executor_callback=executor, max_iterations=5)
    scope = {"scope": TurnScope("acme", "thread-1")}
    result = await runner.run_result(TurnInput(system_prompt="x", turn_id="t", stash=scope))
    [error] = result.errors
    assert isinstance(error.__cause__, TurnTakenOver)
    assert "erased" in str(error)
    assert [row async for row in storage.export("acme")] == []


@pytest.mark.parametrize("seed", range(3))
async def test_instructions_of_turn_and_storage_agree(storage: DurableStorage, seed: int) -> None:
    """With and without keys, also for one text under several keys, the turn has the stored ones after any operation."""
    chance = random.Random(seed)

    async def execute(ctx: DispatchContext) -> None:
        for _ in range(6):
            text, key = chance.choice("abc"), chance.choice([None, None, "k", "l"])
            value = text if key is None and chance.random() < 0.5 else Tokenizable(text, key=key)
            op = chance.choice(["store", "store", "delete", "mutate"])
            known = {each.key for each in ctx.standing_instructions}
            if op != "mutate" or key is None or key in known:
                await getattr(ctx, f"{op}_standing_instruction")(value)
        if ctx.iteration == 9:
            ctx.ack()

    result = await run(storage, execute)
    assert result.ok, result.errors
    stored = await Calls(storage.callbacks(), Turn()).fetch("standing_instruction")
    held = result.context.standing_instructions
    assert [(str(each), each.key) for each in held] == [(str(each), each.key) for each in stored]


async def test_hydrate_loads_stored_values(storage: DurableStorage) -> None:
    """Hydrate loads windows, the most important memories and instructions once; the next turn sees all stored data."""
    calls = Calls(storage.callbacks(), Turn())
    async with storage.unit_of_work(Turn()):
        for number in range(10):
            await calls.store_message(message(f"m{number}"))
            await calls.store_memory(memory(f"f{number}", number / 10))
        await calls.store_tool_call(tool_call("call_0", "done"))
        for text in ("be kind", "be brief"):
            await calls.store_standing_instruction(text)
    seen: dict[str, list[str]] = {}

    async def execute(ctx: DispatchContext) -> None:
        seen["messages"] = [each.id for each in ctx.turn_messages]
        seen["memories"] = [each.id for each in ctx.turn_memories]
        seen["calls"] = [each.id for each in ctx.turn_tool_calls]
        seen["instructions"] = [str(each) for each in ctx.standing_instructions]
        await ctx.store_message(message(f"answer to {seen['messages'][-1]}", role="assistant"))
        ctx.ack()

    middleware = hydrate("tool_calls", "standing_instructions", "tools", messages=Window(last=3), memories=TopK(2))
    assert (await run(storage, execute, middleware)).ok
    assert seen["messages"] == ["m7", "m8", "m9"]
    assert seen["memories"] == ["f8", "f9"]
    assert seen["calls"] == ["call_0"]
    assert seen["instructions"] == ["be kind", "be brief"]
    await calls.delete_memory("f9")
    await calls.delete_message("m9")
    assert (await run(storage, execute, middleware)).ok
    assert seen["messages"] == ["m7", "m8", "answer to m9"]
    assert seen["memories"] == ["f7", "f8"]


async def test_hydrate_limits_the_results_of_a_plain_adapter() -> None:
    """The limits apply to an adapter without support for limits, with its own tools."""
    tool = Tool(name="t", description="x", input_schema={"type": "object"}, handler=lambda _args, _ctx, _meta: "x")
    found = [message(f"m{number}") for number in range(5)]
    facts = [memory("a", 0.1), memory("b", 0.9), memory("c", 0.5)]
    storage: dict[str, Any] = {
        **noop_storage(),
        "fetch_messages_callback": lambda _ctx: found,
        "fetch_memories_callback": lambda _ctx: facts,
        "fetch_tools_callback": lambda _ctx: [tool],
    }

    async def executor(ctx: DispatchContext, _helpers: ExecutorHelpers) -> None:
        ctx.ack()

    middleware = hydrate("tools", messages=Window(last=2), memories=TopK(2))
    runner = TurnRunner(executor_callback=executor, turn_input_pipeline=[middleware], **storage)
    ctx = (await runner.run_result(TurnInput(system_prompt="x"))).context
    assert list(ctx.turn_messages) == found[-2:]
    assert [each.id for each in ctx.turn_memories] == ["b", "c"]
    assert ctx.tools.has("t")


@pytest.mark.parametrize(
    ("names", "limits"),
    [
        ((), {}),
        (("mesages",), {}),
        ((), {"messages": TopK(3)}),
        ((), {"messages": 3}),
        ((), {"tools": Window(last=1)}),
    ],
)
def test_hydrate_refuses_unknown_names(names: tuple[str, ...], limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        hydrate(*names, **limits)


async def test_three_iterations_and_the_next_turn(lasting_url: str) -> None:
    """A turn that fails midway has stored its earlier iterations; another process continues."""

    async def execute(ctx: DispatchContext) -> None:
        done = len(list(ctx.turn_messages))
        if done == 2 and not ctx.stash.get("again"):
            raise RuntimeError("the model is gone")
        await ctx.store_message(message(f"step {done}"))
        if done == 3:
            ctx.ack()

    async def again(ctx: TurnContext, following: Callable[[], Any]) -> None:
        ctx.stash.set("again", value=True)
        await following()

    async with durable_storage(lasting_url) as storage:
        assert (await run(storage, execute, hydrate("messages"))).status == "nack"
    async with durable_storage(lasting_url) as storage:
        assert await Calls(storage.callbacks(), Turn()).ids() == ["step 0", "step 1"]
        assert (await run(storage, execute, hydrate("messages"), again)).ok
        assert await Calls(storage.callbacks(), Turn()).ids() == [f"step {number}" for number in range(4)]
