"""One JSON value per context; no update is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from keelbolt.errors import ConcurrencyError, InvalidAgentResponseError
from keelbolt.kernel import Kernel, open_storage
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext
from keelbolt.tasks.families import FAMILIES
from keelbolt.tasks.turn_input import Conversation
from tests.integration.tasks.stage import Stage, ask


@pytest.fixture
async def kernel() -> AsyncIterator[Kernel]:
    async with open_storage("memory:", declare=FAMILIES) as kernel:
        yield kernel


def conversation(kernel: Kernel, context_id: str = "c", partition: str = "p") -> Conversation:
    return Conversation(kernel.scoped(partition), context_id, tuple)


@pytest.mark.parametrize("value", [{"a": [1]}, [], "", 0, False, 1.5, None])
async def test_a_stored_value_is_loaded(kernel: Kernel, value: Any) -> None:
    """Any JSON value; initially there is none."""
    assert await conversation(kernel).load() is None
    assert await conversation(kernel).update(value) == value
    assert await conversation(kernel).load() == value
    assert await conversation(kernel, "other").load() is None
    assert await conversation(kernel, partition="other").load() is None


async def test_a_function_updates_the_value(kernel: Kernel) -> None:
    """The function can be plain or async; it gets the stored value."""

    async def later(value: Any) -> Any:
        await asyncio.sleep(0)
        return value + 1

    assert await conversation(kernel).update(lambda value: (value or 0) + 1) == 1
    assert await conversation(kernel).update(later) == 2
    assert await conversation(kernel).load() == 2


async def test_a_stale_value_is_refused(kernel: Kernel) -> None:
    """A value based on a stale load is refused, and no update is lost."""
    mine, theirs = conversation(kernel), conversation(kernel)
    for first in (None, "theirs"):
        assert await mine.load() == first
        await theirs.load()
        await theirs.update("theirs")
        with pytest.raises(ConcurrencyError):
            await mine.update("mine")
        assert await conversation(kernel).load() == "theirs"
    await mine.load()
    await mine.update("mine")
    await mine.update("mine again")  # its own write is not a conflict
    assert await conversation(kernel).load() == "mine again"


async def test_without_a_load_the_last_write_wins(kernel: Kernel) -> None:
    await conversation(kernel).update(1)
    await conversation(kernel).update(2)
    assert await conversation(kernel).load() == 2


@pytest.mark.parametrize("value", [float("nan"), object(), "\ud800"])
async def test_values_that_are_not_json(kernel: Kernel, value: Any) -> None:
    await conversation(kernel).update("kept")
    for change in (value, lambda _: value):
        with pytest.raises(InvalidAgentResponseError):
            await conversation(kernel).update(change)
    assert await conversation(kernel).load() == "kept"


async def test_tasks_of_a_context_share_it(stage: Stage) -> None:
    """A worker sees the value of an earlier task of the same context; other contexts have their own."""

    async def worker(ctx: TaskContext) -> None:
        count = await ctx.update_context(lambda kept: (kept or 0) + 1)
        assert await ctx.load_context() == count
        await ctx.complete(str(count))

    engine = await stage.engine(worker)
    asked = [("one", "1"), ("one", "2"), ("two", "1"), ("one", "3")]
    for context_id, expected in asked:
        task = await ask(engine, context_id=context_id)
        assert task.artifacts[0].parts[0].text == expected


async def test_an_unhandled_conflict_fails_the_task(stage: Stage) -> None:
    """A worker that does not handle the conflict fails; the other write stays."""

    async def worker(ctx: TaskContext) -> None:
        await ctx.load_context()
        await conversation(ctx._run.store.kernel, ctx.context_id, ctx._run.scope.partition).update("other")
        await ctx.update_context("mine")

    engine = await stage.engine(worker)
    task = await ask(engine, context_id="c")
    assert task.status.state is TaskState.failed
    assert await conversation(engine.kernel, "c", "~anonymous").load() == "other"
