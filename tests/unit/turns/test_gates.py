"""Checks 30 to 32: gates are settled once, and an abort at a gate is not an error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from keelbolt.errors import (
    InvalidInitialTurnGateValue,
    InvalidTurnGateResolution,
    LlmExecutionGateNotSupported,
    TurnGateAborted,
    TurnGateTimeout,
)
from keelbolt.turns import AbortController, DispatchRunner, RawDispatch, Settlement, TurnGate
from tests.unit.turns.stage import Stage, turn


class Answer(BaseModel):
    amount: int


def settle_twice(gate: Any) -> None:
    gate.resolve(1)
    gate.reject(OSError("late"))
    gate.abort()
    gate.resolve(2)


SETTLES: list[tuple[Any, str, Any]] = [
    (settle_twice, "resolved", 1),
    (lambda gate: gate.reject(OSError("no")), "rejected", OSError),
    (lambda gate: gate.abort("enough"), "aborted", TurnGateAborted),
    (lambda _gate: None, "timeout", TurnGateTimeout),
    (lambda _gate: CONTROLLERS[-1].abort("all of it"), "aborted", TurnGateAborted),
]
CONTROLLERS: list[AbortController] = []


@pytest.mark.parametrize(("settle", "result", "outcome"), SETTLES)
@pytest.mark.parametrize("later", [True, False])
async def test_check_30_settling_a_gate(settle: Any, result: str, outcome: Any, later: bool) -> None:
    stage = Stage()
    CONTROLLERS.append(AbortController())
    outcomes: list[Any] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        try:
            timeout = 20 if result == "timeout" else None
            outcomes.append(await ctx.wait_for(id="g", reason="pay?", payload={"n": 1}, timeout_ms=timeout))
        except Exception as error:
            outcomes.append(type(error))
        ctx.ack()

    runner = stage.runner(work)
    loop = asyncio.get_running_loop()
    runner.observe("turn_gate_open", lambda gate: loop.call_soon(settle, gate) if later else settle(gate))
    await runner.run(turn(abort_controller=CONTROLLERS[-1]))
    assert outcomes == [outcome]
    opened, closed = stage.payloads("turn_gate_open")[0], stage.payloads("turn_gate_closed")[0]
    assert (opened.id, opened.reason, opened.payload, opened.settled) == ("g", "pay?", {"n": 1}, True)
    assert (closed.gate_id, closed.turn_id, closed.result) == ("g", opened.turn_id, result)
    assert len(stage.payloads("turn_gate_closed")) == 1


SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


@pytest.mark.parametrize(("schema", "expected"), [(Answer, Answer(amount=5)), (SCHEMA, {"amount": 5})])
async def test_check_31_a_wrong_value_leaves_the_gate_open(schema: Any, expected: Any) -> None:
    stage = Stage()
    answers: list[Any] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        answers.append(await ctx.wait_for(reason="how much?", schema=schema))
        ctx.ack()

    def answer(gate: Any) -> None:
        for wrong in ({"amount": "much"}, {}, None):
            with pytest.raises(InvalidTurnGateResolution, match="stays open"):
                gate.resolve(wrong)
        assert not gate.settled
        gate.resolve({"amount": 5})

    runner = stage.runner(work)
    runner.observe("turn_gate_open", answer)
    result = await runner.run_result(turn())
    assert (result.status, answers) == ("ack", [expected])


@pytest.mark.parametrize("where", ["executor", "turn_input_pipeline", "dispatch_input_pipeline"])
@pytest.mark.parametrize("before", [True, False])
async def test_check_32_an_abort_at_a_gate_is_not_an_error(where: str, before: bool) -> None:
    stage = Stage()
    controller = AbortController()

    async def wait(ctx: Any, *_rest: Any) -> None:
        if before:
            controller.abort()
        await ctx.wait_for(reason="wait")

    config: dict[str, Any] = {} if where == "executor" else {where: [wait]}
    runner = stage.runner(wait if where == "executor" else None, **config)
    runner.observe("turn_gate_open", lambda _gate: controller.abort("stop"))
    result = await runner.run_result(turn(abort_controller=controller))
    assert (result.status, result.errors, stage.payloads("error")) == ("aborted", (), [])
    if where != "turn_input_pipeline":
        assert stage.payloads("dispatch_end")[0].status == "aborted"
    assert stage.payloads("turn_gate_closed")[0].result == "aborted"
    assert stage.names("turn_end") == ["turn_end"]


@pytest.mark.parametrize("settle", ["resolve", "abort the turn"])
async def test_a_gate_may_be_settled_from_a_thread(settle: str) -> None:
    controller = AbortController()
    answers: list[Any] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        answers.append(await ctx.wait_for(reason="wait"))
        ctx.ack()

    async def from_a_thread(gate: TurnGate) -> None:
        await asyncio.to_thread(gate.resolve if settle == "resolve" else controller.abort, 5)

    runner = Stage().runner(work)
    runner.observe("turn_gate_open", from_a_thread)
    waiting = asyncio.ensure_future(controller.signal.wait())
    result = await asyncio.wait_for(runner.run_result(turn(abort_controller=controller)), 10)
    if settle == "resolve":
        assert (answers, result.status) == ([5], "ack")
        waiting.cancel()
    else:
        assert (answers, result.status, await waiting) == ([], "aborted", 5)


async def test_a_dispatch_aborted_at_a_gate_ends() -> None:
    stage = Stage()
    contexts: list[Any] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        contexts.append(ctx)
        await ctx.wait_for(reason="wait")

    runner = stage.runner(work)
    runner.observe("turn_gate_open", lambda _gate: contexts[0].abort())
    result = await runner.run_result(turn())
    assert (result.status, result.errors, result.context.aborted) == ("aborted", (), False)


async def test_a_broken_gate_without_an_abort_is_an_error() -> None:
    stage = Stage()

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.wait_for(reason="wait")

    runner = stage.runner(work)
    runner.observe("turn_gate_open", lambda gate: gate.abort())
    result = await runner.run_result(turn())
    assert isinstance(result.errors[0].__cause__, TurnGateAborted)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"reason": ""}, "reason is empty"),
        ({"id": ""}, "id is empty"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"timeout_ms": 1.5}, "timeout_ms"),
        ({"timeout_ms": True}, "timeout_ms"),
        ({"schema": 5}, "schema"),
        ({"schema": {"type": "money"}}, "has the unknown type 'money'"),
        ({"created_at": "soon"}, "created_at"),
        ({"colour": "red"}, "'colour'"),
    ],
)
async def test_a_wrong_gate_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInitialTurnGateValue) as refused:
        TurnGate(**{"turn_id": "t", "reason": "why", **fields})
    assert words in str(refused.value)


class Kept:
    """A gate store in one process: settlements by id."""

    def __init__(self) -> None:
        self.settled: dict[str, asyncio.Future[Settlement]] = {}
        self.calls: list[str] = []

    async def open(self, _ctx: Any, gate: TurnGate) -> Settlement | None:
        self.calls.append("open")
        known = self.settled.setdefault(gate.id, asyncio.get_running_loop().create_future())
        return known.result() if known.done() else None

    async def settle(self, _ctx: Any, gate: TurnGate, settlement: Settlement) -> Settlement:
        self.calls.append("settle")
        known = self.settled[gate.id]
        if not known.done():
            known.set_result(settlement)
        return known.result()

    async def wait(self, _ctx: Any, gate: TurnGate) -> Settlement:
        return await asyncio.shield(self.settled[gate.id])


@pytest.mark.parametrize("where", ["here", "elsewhere", "before"])
async def test_a_gate_store(where: str) -> None:
    stage = Stage()
    store = Kept()
    answers: list[Any] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        answers.append(await ctx.wait_for(id="g", reason="ok?"))
        ctx.ack()

    def opened(gate: Any) -> None:
        assert store.calls == ["open"]
        if where == "here":
            gate.resolve("here")
        else:
            store.settled["g"].set_result(Settlement("resolved", "elsewhere"))

    runner = stage.runner(work, gate_store=store)
    runner.observe("turn_gate_open", opened)
    if where == "before":
        store.settled["g"] = asyncio.get_running_loop().create_future()
        store.settled["g"].set_result(Settlement("resolved", "before"))
    await runner.run(turn())
    assert answers == [where]
    assert stage.payloads("turn_gate_closed")[0].result == "resolved"
    assert len(stage.payloads("turn_gate_open")) == (where != "before")


async def test_a_raw_dispatch_has_no_gates_by_default() -> None:
    answers: list[Any] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        try:
            answers.append(await ctx.wait_for(reason="ok?"))
        except LlmExecutionGateNotSupported as error:
            answers.append(error.status)
        ctx.ack()

    async def yes(**gate: Any) -> Any:
        return gate["reason"]

    runner = DispatchRunner(executor_callback=work)
    await runner.dispatch(raw=RawDispatch(system_prompt="x"))
    await runner.dispatch(raw=RawDispatch(system_prompt="x", wait_for=yes))
    assert answers == [501, "ok?"]
