"""Objects that can be a worker."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from keelbolt.errors import InvalidValue
from keelbolt.tasks import TaskContext, Worker
from keelbolt.tasks.worker import handler_of
from tests.integration.tasks.stage import Stage, ask


class Echo(Worker):
    def __init__(self, greeting: str = "You said") -> None:
        self.greeting = greeting

    async def handle(self, ctx: TaskContext) -> None:
        await ctx.complete(f"{self.greeting}: {ctx.user_text}")


async def echo(ctx: TaskContext) -> None:
    await ctx.complete(f"You said: {ctx.user_text}")


async def greet(greeting: str, ctx: TaskContext) -> None:
    await ctx.complete(f"{greeting}: {ctx.user_text}")


class Callable_:  # noqa: N801
    async def __call__(self, ctx: TaskContext) -> None:
        await echo(ctx)


@pytest.mark.parametrize("worker", [Echo, Echo(), echo, partial(greet, "You said"), Callable_(), Callable_().__call__])
async def test_valid_workers(stage: Stage, worker: Any) -> None:
    """A worker is a Worker, its class, a coroutine function, or any object that behaves like one."""
    engine = await stage.engine(worker)
    assert (await ask(engine, "Hello")).artifacts[0].parts[0].text == "You said: Hello"


class NotAsync(Worker):
    def handle(self, ctx: TaskContext) -> None:  # type: ignore[override]
        pass


class Incomplete(Worker):
    pass


def plain(ctx: TaskContext) -> None:
    pass


WRONG: list[Any] = [plain, NotAsync(), NotAsync, int, "echo", None, 5, asyncio]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_invalid_workers(wrong: Any) -> None:
    """A worker that is not async is refused when the engine is created; the error names the solution."""
    with pytest.raises(InvalidValue, match="async def"):
        handler_of(wrong)


def test_an_unfinished_class() -> None:
    with pytest.raises(TypeError, match="handle"):
        handler_of(Incomplete)
