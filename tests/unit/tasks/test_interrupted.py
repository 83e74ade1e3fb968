"""A worker that stops waiting while its end is being written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from keelbolt.errors import KeelboltError, StorageBusy
from keelbolt.kernel import Complete, Kernel, Operation, Receipt, open_storage
from keelbolt.tasks import Message, Part, Role, TaskContext, TaskEngine, TaskState

HELLO = Message(message_id="1", role=Role.user, parts=[Part(text="Hello")])


def slow_end(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, *, taken: bool) -> None:
    """Delay the first commit that ends a task; it succeeds or fails."""
    commit = kernel.commit
    ended = False

    def slow(partition: str, *operations: Operation) -> Awaitable[Receipt]:
        nonlocal ended
        if ended or not any(isinstance(operation, Complete) for operation in operations):
            return commit(partition, *operations)
        ended = True
        return late(commit(partition, *operations) if taken else None)

    async def late(receipt: Awaitable[Receipt] | None) -> Receipt:
        await asyncio.sleep(10)
        if receipt is None:
            raise StorageBusy("it was never written")
        return await receipt

    monkeypatch.setattr(kernel, "commit", slow)


@pytest.mark.parametrize("taken", [True, False])
async def test_an_interrupted_write_is_looked_up(taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's next call builds on the stored state, not on the interrupted write."""
    raised: list[str] = []

    async def work(ctx: TaskContext) -> None:
        try:
            async with asyncio.timeout(0.05):
                await ctx.complete("first")
        except TimeoutError:
            try:
                await ctx.complete("second")
            except KeelboltError as error:
                raised.append(type(error).__name__)
                raise

    async with open_storage("memory:") as kernel, TaskEngine(kernel, work) as engine:
        slow_end(kernel, monkeypatch, taken=taken)
        task = await engine.tasks.settled(await engine.tasks.send(HELLO))
        assert task.view.state is TaskState.completed
        assert (await engine.store.task(task)).artifacts[0].parts[0].text == ("first" if taken else "second")
        assert raised == (["TaskTerminalStateError"] if taken else [])


async def test_a_task_whose_end_was_never_written_does_not_stay_working(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that gives up leaves a failed task, not one that stays working forever."""

    async def work(ctx: TaskContext) -> None:
        async with asyncio.timeout(0.05):
            await ctx.complete("first")

    async with open_storage("memory:") as kernel, TaskEngine(kernel, work) as engine:
        slow_end(kernel, monkeypatch, taken=False)
        task = await engine.tasks.settled(await engine.tasks.send(HELLO))
        assert task.view.state is TaskState.failed
