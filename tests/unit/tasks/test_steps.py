"""The names, policies and results of durable steps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keelbolt.errors import InvalidValue
from keelbolt.protocol.types import Part, TaskState
from keelbolt.tasks import Done, TaskContext
from keelbolt.tasks.steps import read_answer
from tests.integration.tasks.stage import Stage, ask, bodies


async def result_of(stage: Stage, work: Any) -> Any:
    """Return the result of this function in a worker."""
    found = []

    async def worker(ctx: TaskContext) -> None:
        try:
            found.append(await work(ctx))
        except Exception as error:
            found.append(error)
        await ctx.complete()

    engine = await stage.engine(worker)
    assert (await ask(engine)).status.state is TaskState.completed
    return found[0]


async def test_functions_of_both_kinds(stage: Stage) -> None:
    """A step is a function or a coroutine function, with arguments."""

    async def later(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    assert await result_of(stage, lambda ctx: ctx.step("s", later, 1, 2)) == 3
    assert await result_of(stage, lambda ctx: ctx.step("s", lambda a: a * 2, 4)) == 8


@pytest.mark.parametrize(
    ("given", "kept"), [((1, 2), [1, 2]), ({"a": 1}, {"a": 1}), (None, None), ("ü", "ü"), ({1: 2}, {"1": 2})]
)
async def test_results_are_json(stage: Stage, given: Any, kept: Any) -> None:
    """A step returns the same value the first time as after a crash: the JSON form of its result."""
    assert await result_of(stage, lambda ctx: ctx.step("s", lambda: given)) == kept


async def test_an_exception_propagates(stage: Stage) -> None:
    """The worker gets the step's exception; the log records the failure without the reason."""

    def boom() -> None:
        raise LookupError("secret")

    async def worker(ctx: TaskContext) -> None:
        with pytest.raises(LookupError):
            await ctx.step("s", boom)
        await ctx.complete()

    engine = await stage.engine(worker)
    task = await ask(engine)
    assert [body["state"] for body in await bodies(engine, task.id, "step")] == ["started", "failed"]
    assert "secret" not in str(await bodies(engine, task.id, "step"))


async def test_a_name_may_be_used_again(stage: Stage) -> None:
    """A step in a loop is a new step in each iteration."""
    engine = await stage.engine(_loop)
    task = await ask(engine)
    done = [body for body in await bodies(engine, task.id, "step") if body["state"] == "done"]
    assert [(body["step"], body["result"]) for body in done] == [("s", 0), ("s#2", 1), ("s#3", 2)]


async def _loop(ctx: TaskContext) -> None:
    assert [await ctx.step("s", abs, number) for number in range(3)] == [0, 1, 2]
    await ctx.complete()


async def test_concurrent_steps(stage: Stage) -> None:
    """Steps may run concurrently."""

    async def both(ctx: TaskContext) -> list[str]:
        async def slow(name: str) -> str:
            await asyncio.sleep(0.01)
            return name

        return list(await asyncio.gather(*(ctx.step(name, slow, name) for name in "abc")))

    assert await result_of(stage, both) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda ctx: ctx.step("", print),
        lambda ctx: ctx.step("~mine", print),
        lambda ctx: ctx.step(5, print),
        lambda ctx: ctx.step("s", print, in_doubt="perhaps"),
        lambda ctx: ctx.step("s", print, in_doubt="verify"),
        lambda ctx: ctx.sleep(-1),
        lambda ctx: ctx.sleep(float("nan")),
        lambda ctx: ctx.sleep(float("inf")),
        lambda ctx: ctx.sleep("1"),
        lambda ctx: ctx.sleep(True),
    ],
)
async def test_invalid_steps(stage: Stage, wrong: Any) -> None:
    assert isinstance(await result_of(stage, wrong), InvalidValue)


def test_answers() -> None:
    """An answer about a step is one of three words, as text or as data; the first valid one counts."""
    assert read_answer([Part(text="I think"), Part(text="DONE.")]) == ("done", None)
    assert read_answer([Part(data={"answer": "failed"})]) == ("failed", None)
    assert read_answer([Part(data={"answer": "done", "result": 0})]) == ("done", 0)
    for no in ([Part(text="it is done")], [Part(data={"answer": "yes"})], [Part(data=["done"])], [Part(data=None)], []):
        assert read_answer(no) is None


def test_done_contains_a_result() -> None:
    assert Done() == Done(None)
    assert Done(5).result == 5
