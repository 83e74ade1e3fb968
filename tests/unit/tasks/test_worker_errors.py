"""Whatever a worker raises by itself fails its task, once; only a store that does not answer gives it back."""

from __future__ import annotations

import asyncio

import pytest

from keelbolt.errors import ConcurrencyError, InvalidValue, StorageUnreachable, TaskTerminalStateError
from keelbolt.kernel import open_storage
from keelbolt.protocol.types import Message, Part, Role, TaskState
from keelbolt.tasks import TaskContext, TaskEngine
from keelbolt.tasks.json import MAX_CHUNK_BYTES, MAX_WORDS_BYTES
from keelbolt.tasks.worker import Handler

MESSAGE = Message(message_id="1", role=Role.user, parts=[Part(text="Hello")])


async def ended(handler: Handler) -> tuple[TaskState, int]:
    """The state that the task ends in, and how often the worker was called."""
    calls = 0

    async def counted(ctx: TaskContext) -> None:
        nonlocal calls
        calls += 1
        await handler(ctx)

    async with open_storage("memory:") as kernel, TaskEngine(kernel, counted) as engine:
        stored = await engine.tasks.settled(await engine.tasks.send(MESSAGE), seconds=10)
    return stored.state, calls


@pytest.mark.parametrize(
    "error", [InvalidValue("no"), ConcurrencyError("a"), TaskTerminalStateError("another task"), ValueError()]
)
async def test_an_error_of_the_worker_fails_the_task_once(error: Exception) -> None:
    async def worker(ctx: TaskContext) -> None:
        raise error

    assert await ended(worker) == (TaskState.failed, 1)


async def test_a_cancelled_helper_of_the_worker_fails_the_task_once() -> None:
    """CancelledError that nobody sent to the worker is an error like others."""

    async def worker(ctx: TaskContext) -> None:
        helper = asyncio.create_task(asyncio.sleep(10))
        asyncio.get_running_loop().call_later(0.01, helper.cancel)
        await helper

    assert await ended(worker) == (TaskState.failed, 1)


async def test_wrong_arguments_fail_the_task_once() -> None:
    async def worker(ctx: TaskContext) -> None:
        await ctx.sleep(-1)

    assert await ended(worker) == (TaskState.failed, 1)


async def test_what_is_too_large_fails_the_task_once() -> None:
    async def chunk(ctx: TaskContext) -> None:
        await ctx.emit_text_artifact("x" * MAX_CHUNK_BYTES)

    async def words(ctx: TaskContext) -> None:
        await ctx.respond("x" * MAX_WORDS_BYTES)

    async def step(ctx: TaskContext) -> None:
        await ctx.step("large", lambda: "x" * MAX_WORDS_BYTES)

    for worker in (chunk, words, step):
        assert await ended(worker) == (TaskState.failed, 1)


async def test_a_store_that_does_not_answer_gives_the_task_back() -> None:
    async def worker(ctx: TaskContext) -> None:
        if not (tries := await ctx.load_context() or 0):
            await ctx.update_context(tries + 1)
            raise StorageUnreachable
        await ctx.complete()

    assert await ended(worker) == (TaskState.completed, 2)
