"""Return values of workers: a text or a JSON value is the result; None needs an artifact of the turn."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pydantic import BaseModel

from keelbolt.errors import InvalidValue
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext, Worker
from keelbolt.tasks.worker import handler_of
from keelbolt.testing import WorkerHarness


class Order(BaseModel):
    dish: str


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("Hello", {"text": "Hello"}),
        ("", {"text": ""}),
        ({"dish": "soup"}, {"data": {"dish": "soup"}}),
        ([1, 2], {"data": [1, 2]}),
        (0, {"data": 0}),
        (False, {"data": False}),
        (Order(dish="soup"), {"data": {"dish": "soup"}}),
    ],
)
async def test_a_value_is_the_result(value: Any, part: dict[str, Any]) -> None:
    async def worker(ctx: TaskContext) -> Any:
        return value

    async with WorkerHarness(worker) as harness:
        task = await harness.send("Hello")
    assert task.status.state is TaskState.completed
    [artifact] = task.artifacts or []
    [found] = artifact.parts
    assert found.model_dump(exclude_none=True, by_alias=True).items() >= part.items()


async def test_a_method_may_return_its_result_too() -> None:
    class Echo(Worker):
        async def handle(self, ctx: TaskContext) -> str:
            return f"You said: {ctx.user_text}"

    async with WorkerHarness(Echo) as harness:
        await harness.send("Hello")
        assert harness.artifacts == {"final-answer": "You said: Hello"}


async def test_none_completes_a_turn_with_an_artifact() -> None:
    async def worker(ctx: TaskContext) -> None:
        await ctx.emit_text_artifact("Hello")

    async with WorkerHarness(worker) as harness:
        await harness.send("Hello")
        assert (harness.state, harness.artifacts) == ("completed", {"answer": "Hello"})


async def test_none_completes_a_turn_with_an_artifact_of_a_recorded_step() -> None:
    """A run after a crash does not emit the artifact again, and counts it as an artifact of this turn."""

    async def worker(ctx: TaskContext) -> None:
        await ctx.step("emit", ctx.emit_text_artifact, "Hello")
        if ctx.attempt == 1:
            await ctx.sleep(3600)

    async with WorkerHarness(worker) as harness:
        await harness.send("Hello", wait=False)
        await harness.until(lambda: harness.steps.get("emit") == "done")
        await harness.crash()
        await harness.advance(3700)
        assert (harness.state, harness.artifacts) == ("completed", {"answer": "Hello"})


async def test_none_without_an_artifact_fails_with_a_hint() -> None:
    """The hint is for the operator; an artifact of an earlier turn does not count."""

    async def worker(ctx: TaskContext) -> None:
        if ctx.turn == 1:
            await ctx.emit_text_artifact("A question")
            await ctx.request_input("Which?")

    async with WorkerHarness(worker) as harness:
        await harness.send("Hello")
        await harness.answer("This one")
        assert harness.state == "failed"
        assert harness.text == "The agent returned no result: its worker did not end the turn."
        [error] = [body for kind, body in harness.events if kind == "error"]
    assert "Return a text or a JSON value" in error["message"]


async def test_values_that_are_not_json_fail() -> None:
    async def worker(ctx: TaskContext) -> object:
        return object()

    async with WorkerHarness(worker) as harness:
        await harness.send("Hello")
        assert harness.state == "failed"
        assert [kind for kind, _ in harness.events if kind == "error"]


async def test_a_value_after_an_end_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async def worker(ctx: TaskContext) -> str:
        await ctx.complete("first")
        return "second"

    with caplog.at_level(logging.WARNING, "keelbolt.tasks"):
        async with WorkerHarness(worker) as harness:
            await harness.send("Hello")
            assert harness.artifacts == {"final-answer": "first"}
    assert "is dropped" in caplog.text


async def test_a_worker_without_a_parameter_is_refused_at_once() -> None:
    async def nothing() -> None: ...

    async def two(ctx: TaskContext, other: int) -> None: ...

    class Method(Worker):
        async def handle(self) -> None:  # type: ignore[override]
            ...

    for worker, hint in (
        (nothing, r"Write: async def nothing\(ctx: TaskContext\)"),
        (two, r"missing a required argument: 'other'"),
        (Method, r"Write: async def handle\(self, ctx: TaskContext\)"),
    ):
        with pytest.raises(InvalidValue, match=hint):
            handler_of(worker)  # type: ignore[arg-type]
