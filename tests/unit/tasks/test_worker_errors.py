"""Any exception of a worker fails its task, once; only an unreachable storage releases the task."""

from __future__ import annotations

import asyncio

import pytest

from keelbolt.errors import ConcurrencyError, InvalidValue, StorageUnreachable, TaskTerminalStateError
from keelbolt.kernel import open_storage
from keelbolt.protocol.types import Message, Part, Role, TaskState
from keelbolt.tasks import TaskContext, TaskEngine
from keelbolt.tasks.parts import MAX_CHUNK_BYTES, MAX_WORDS_BYTES
from keelbolt.tasks.worker import Handler

MESSAGE = Message(message_id="1", role=Role.user, parts=[Part(text="Hello")])


async def ended(handler: Handler) -> tuple[TaskState, int]:
    """Return the state in which the task ends, and the number of calls of the worker."""
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
    """A CancelledError that was not sent to the worker is an error like others."""

    async def worker(ctx: TaskContext) -> None:
        helper = asyncio.create_task(asyncio.sleep(10))
        asyncio.get_running_loop().call_later(0.01, helper.cancel)
        await helper

    assert await ended(worker) == (TaskState.failed, 1)


async def test_wrong_arguments_fail_the_task_once() -> None:
    async def worker(ctx: TaskContext) -> None:
        await ctx.sleep(-1)

    assert await ended(worker) == (TaskState.failed, 1)


async def test_values_that_are_too_large_fail_the_task_once() -> None:
    async def chunk(ctx: TaskContext) -> None:
        await ctx.emit_text_artifact("x" * MAX_CHUNK_BYTES)

    async def words(ctx: TaskContext) -> None:
        await ctx.respond("x" * MAX_WORDS_BYTES)

    async def step(ctx: TaskContext) -> None:
        await ctx.step("large", lambda: "x" * MAX_WORDS_BYTES)

    for worker in (chunk, words, step):
        assert await ended(worker) == (TaskState.failed, 1)


async def test_an_unreachable_storage_releases_the_task() -> None:
    async def worker(ctx: TaskContext) -> None:
        if not (tries := await ctx.load_context() or 0):
            await ctx.update_context(tries + 1)
            raise StorageUnreachable
        await ctx.complete()

    assert await ended(worker) == (TaskState.completed, 2)
