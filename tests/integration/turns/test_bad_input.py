"""Bad input to the runner and its durable storage raises a named error, and nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from keelbolt.errors import (
    DispatchFlushError,
    InputPipelineError,
    InvalidTurnContext,
    InvalidTurnRunnerConfig,
    LlmExecutionAlreadySignalled,
    LlmExecutionExecutorError,
    NotAMediaReader,
    NotASpoolReader,
    ReportAfterCompletion,
    TurnError,
    TurnStorageCorrupt,
    TurnStorageScopeMissing,
)
from keelbolt.kernel import Put
from keelbolt.turns import (
    DispatchContext,
    DurableStorage,
    SpooledArtifact,
    TurnGate,
    TurnInput,
    durable_storage,
    hydrate,
)
from keelbolt.turns.durable.families import GATES
from tests.integration.turns.stage import image, memory, message

SCOPE = {"tenant": "acme", "thread": "t1"}


@pytest.fixture
async def storage() -> AsyncIterator[DurableStorage]:
    async with durable_storage("memory:") as storage:
        yield storage


def given(scope: Any = SCOPE, **more: Any) -> TurnInput:
    return TurnInput(system_prompt="Go.", stash={} if scope is None else {"scope": scope}, **more)


async def stores(ctx: DispatchContext, _helpers: Any) -> None:
    await ctx.store_message(message())
    ctx.ack()


async def kept(storage: DurableStorage) -> list[Any]:
    return [row async for row in storage.export("acme")]


@pytest.mark.parametrize(
    "scope", [None, "acme", {"tenant": "acme"}, {**SCOPE, "tenant": ""}, {**SCOPE, "user": "x"}, 5]
)
@pytest.mark.parametrize("where", ["hydrate", "store", "begin"])
async def test_a_scope_is_required(storage: DurableStorage, scope: Any, where: str) -> None:
    pipeline = [hydrate("messages")] if where == "hydrate" else []
    runner = storage.runner(executor_callback=stores, turn_input_pipeline=pipeline)
    result = await runner.run_result(given(scope, turn_id="t" if where == "begin" else None))
    (error,) = result.errors
    assert type(error) is (DispatchFlushError if where == "store" else InputPipelineError)
    assert isinstance(error.__cause__, TurnStorageScopeMissing)
    assert not result.ok
    assert await kept(storage) == []


def _signals_twice(ctx: DispatchContext, _helpers: Any) -> None:
    ctx.ack()
    ctx.nack("and no")


def _reports_late(_ctx: DispatchContext, helpers: Any) -> None:
    helpers.report_message("m", "all", is_complete=True)
    helpers.report_message("m", "more")


def _attaches_no_reader(ctx: DispatchContext, _helpers: Any) -> None:
    ctx.store_message(message(attachments=[image(object())])).close()


def _spools_no_reader(_ctx: DispatchContext, _helpers: Any) -> None:
    SpooledArtifact(object())  # type: ignore[arg-type]


MISTAKES: list[tuple[Callable[..., Any], type[TurnError]]] = [
    (_signals_twice, LlmExecutionAlreadySignalled),
    (_reports_late, ReportAfterCompletion),
    (_attaches_no_reader, NotAMediaReader),
    (_spools_no_reader, NotASpoolReader),
]


@pytest.mark.parametrize(("mistake", "kind"), MISTAKES, ids=[kind.__name__ for _, kind in MISTAKES])
async def test_mistakes_of_an_executor(storage: DurableStorage, mistake: Any, kind: type[TurnError]) -> None:
    async def execute(ctx: DispatchContext, helpers: Any) -> None:
        await ctx.store_message(message("before"))
        mistake(ctx, helpers)

    result = await storage.runner(executor_callback=execute).run_result(given())
    (error,) = result.errors
    assert type(error) is LlmExecutionExecutorError
    assert type(error.__cause__) is kind
    assert await kept(storage) == []


async def test_a_callback_that_raises(storage: DurableStorage) -> None:
    def refuse(_ctx: Any, _message: Any) -> None:
        raise OSError("no")

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        await ctx.store_memory(memory())
        await ctx.store_message(message())
        ctx.ack()

    result = await storage.runner(executor_callback=execute, store_message_callback=refuse).run_result(given())
    (error,) = result.errors
    assert isinstance(error, DispatchFlushError)
    assert (str(error.failed), error.applied) == ("store message m1", ())
    assert await kept(storage) == [], "the memory is not stored either: one unit of work"


async def test_a_callback_that_hangs_can_be_cancelled(storage: DurableStorage) -> None:
    hanging = asyncio.Event()

    async def hang(_ctx: Any, _message: Any) -> None:
        hanging.set()
        await asyncio.Event().wait()

    runner = storage.runner(executor_callback=stores, store_message_callback=hang)
    running = asyncio.create_task(runner.run_result(given(turn_id="t")))
    await hanging.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await kept(storage) == []
    assert (await storage.runner(executor_callback=stores).run_result(given(turn_id="t"))).iterations == 1


async def test_a_callback_that_is_not_async(storage: DurableStorage) -> None:
    rows: list[Any] = []
    runner = storage.runner(executor_callback=stores, store_message_callback=lambda _ctx, stored: rows.append(stored))
    assert (await runner.run_result(given())).ok
    assert [row.id for row in rows] == ["m1"]


@pytest.mark.parametrize("turn_id", ["", 5, b"t", ["t"]])
async def test_invalid_turn_ids_are_refused(storage: DurableStorage, turn_id: Any) -> None:
    with pytest.raises(InvalidTurnContext, match="turn_id"):
        await storage.runner(executor_callback=stores).run_result(given(turn_id=turn_id))


@pytest.mark.parametrize("option", ["progress_store", "gate_store"])
def test_invalid_stores_are_refused(option: Any) -> None:
    wrong: Any = {option: object()}
    with pytest.raises(InvalidTurnRunnerConfig, match=f"{option} must have the methods"):
        durable_storage("memory:").runner(executor_callback=stores, **wrong)


@pytest.mark.parametrize("turn_id", ["a/b", "%2F", "~", "x" * 5000, "é\n\ud800", "\x00"])
async def test_any_text_can_be_a_turn_id(storage: DurableStorage, turn_id: str) -> None:
    """Unusual ids are distinct and can be loaded."""
    runner = storage.runner(executor_callback=stores)
    assert (await runner.run_result(given(turn_id=turn_id))).iterations == 1
    assert (await runner.run_result(given(turn_id=turn_id))).iterations == 0
    assert (await runner.run_result(given(turn_id=f"{turn_id}x"))).iterations == 1


async def test_a_damaged_gate(storage: DurableStorage) -> None:
    result = await storage.runner(executor_callback=stores).run_result(given())
    gate = TurnGate(turn_id=result.turn_id, id="g", reason="?")
    await storage.gates.open(result.context, gate)
    assert gate.token is not None
    scope = storage.place(result.context).scope
    (found,) = await storage.gates.list()
    record = await scope.get(GATES, found.key)
    assert record is not None
    for body in (b"", b"[]", b'{"token": 1}', record.body.replace(b'"reason"', b'"raison"')):
        await scope.commit(Put(GATES, found.key, body, record.fields))
        with pytest.raises(TurnStorageCorrupt):
            await storage.gates.resolve(gate.token, 1)
