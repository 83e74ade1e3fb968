"""A temporary failure must neither lose a task nor run it twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keelbolt.errors import StorageUnreachable, TaskNotAcceptingMessagesError
from keelbolt.kernel import Patch, Scope, open_storage
from keelbolt.protocol.types import Message, Part, Role
from keelbolt.tasks import TaskContext, TaskEngine, TaskSettings, TaskState, intake, run_state
from keelbolt.tasks import run as run_module
from keelbolt.tasks import runner as runner_module
from keelbolt.tasks import view as view_module
from keelbolt.tasks.stored_tasks import StoredTask


def message(message_id: str = "m1", **ids: Any) -> Message:
    return Message(message_id=message_id, role=Role.user, parts=[Part(text="hi")], **ids)


async def test_a_refused_end_whose_reading_fails_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused end counts as not written: the task returns to the queue and ends there."""
    monkeypatch.setattr(run_module, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(runner_module, "POLL_SECONDS", 0.02)
    go = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        await go.wait()
        await ctx.complete("done")

    async with open_storage("memory:") as kernel, TaskEngine(kernel, worker) as engine:
        sent = await engine.tasks.send(message())
        scope, task_id = sent.task.scope, sent.task.task_id
        await scope.commit(Patch("tasks", task_id, {"push": '["c"]'}))  # changes the version of the record
        load, failed = engine.store.load, False

        async def flaky(scope: Scope, task_id: str) -> StoredTask:
            nonlocal failed
            if not failed:
                failed = True
                raise StorageUnreachable("blip")
            return await load(scope, task_id)

        monkeypatch.setattr(engine.store, "load", flaky)
        go.set()
        async with asyncio.timeout(20):
            task = await engine.tasks.settled(sent)
        assert failed
        assert task.state is TaskState.completed


async def test_a_turn_that_replaced_its_worker_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that did not stop in time does not start the next turn when it ends."""
    monkeypatch.setattr(run_state, "STUBBORN_SECONDS", 0.05)
    begun: list[str] = []
    released = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.message_id)
        if ctx.message_id == "m1":
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue
            return
        await asyncio.sleep(0.3)
        await ctx.complete("done")

    settings = TaskSettings.of({}, double_text="interrupt")
    async with open_storage("memory:") as kernel, TaskEngine(kernel, worker, settings=settings) as engine:
        sent = await engine.tasks.send(message())
        await asyncio.sleep(0.1)
        await engine.tasks.send(message("m2", task_id=sent.task.task_id))
        async with asyncio.timeout(20):
            while begun != ["m1", "m2"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            released.set()
            while (await engine.tasks.load(sent.task.task_id)).state is not TaskState.completed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert begun == ["m1", "m2"]


async def test_a_task_created_while_the_lease_was_lost_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim of an incarnation that is gone is released, because no process would renew it."""
    monkeypatch.setattr(runner_module, "POLL_SECONDS", 0.02)
    begun: list[int] = []

    async def worker(ctx: TaskContext) -> None:
        begun.append(ctx.attempt)
        await ctx.complete("done")

    async with open_storage("memory:") as kernel, TaskEngine(kernel, worker) as engine:
        commit = kernel.commit
        assert engine.runner is not None
        lease = engine.runner._lease

        async def slow(partition: str, *operations: Any) -> Any:
            monkeypatch.setattr(kernel, "commit", commit)
            lease._fence()
            return await commit(partition, *operations)

        monkeypatch.setattr(kernel, "commit", slow)
        sent = await engine.tasks.send(message())
        assert sent.run is None
        async with asyncio.timeout(20):
            task = await engine.tasks.settled(sent)
        assert task.state is TaskState.completed
        assert len(begun) == 1


async def test_a_task_that_exceeds_a_snapshot_continues_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot only makes reading faster; a missing one is never an error."""
    monkeypatch.setattr(view_module, "INDEX_MAX_BYTES", 100_000)

    async def worker(ctx: TaskContext) -> None:
        for number in range(700):
            await ctx.emit_text_artifact("x" * 300, artifact_id=f"a{number}")
        await ctx.complete()

    async with open_storage("memory:") as kernel, TaskEngine(kernel, worker) as engine:
        async with asyncio.timeout(60):
            task = await engine.tasks.settled(await engine.tasks.send(message()))
        found = await engine.store.task(await engine.tasks.load(task.task_id))
        assert found.status.state is TaskState.completed
        assert len(found.artifacts) == 700


async def test_the_chunks_of_a_finished_stream_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last chunk of a long stream merges it into a segment, regardless of the number of entries."""

    async def worker(ctx: TaskContext) -> None:
        for number in range(100):
            await ctx.emit_text_artifact("x" * 300, append=True, last_chunk=number == 99)
        await ctx.complete()

    async with open_storage("memory:") as kernel, TaskEngine(kernel, worker) as engine:
        async with asyncio.timeout(60):
            sent = await engine.tasks.send(message())
            await engine.tasks.settled(sent)
        loaded = await engine.tasks.load(sent.task.task_id)
        assert await loaded.scope.get("task_snapshots", loaded.task_id) is not None
        assert len((await engine.store.task(loaded)).artifacts[0].parts) == 100


async def test_a_prioritised_task_runs_first() -> None:
    """Waiting tasks with a higher priority are claimed first, and later notifications don't undo that."""
    order: list[str] = []

    async def worker(ctx: TaskContext) -> None:
        order.append(ctx.message_id)
        await ctx.complete()

    async with open_storage("memory:") as kernel:
        async with TaskEngine(kernel) as front:
            sent = [await front.tasks.send(message(f"m{number}")) for number in range(3)]
            await front.tasks.steer(sent[2].task.task_id, "prioritise", reason="urgent", payload={"priority": 5})
            await front.tasks.steer(sent[2].task.task_id, "inject", reason="more")
        settings = TaskSettings.of({}, concurrency=1)
        async with TaskEngine(kernel, worker, settings=settings) as engine, asyncio.timeout(20):
            for each in sent:
                await engine.tasks.settled(each)
        assert order == ["m2", "m0", "m1"]


async def test_the_number_of_messages_waiting_for_a_running_task_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_WAITING", 3)
    go = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        await go.wait()
        await ctx.complete()

    async with open_storage("memory:") as kernel, TaskEngine(kernel, worker) as engine:
        sent = await engine.tasks.send(message())
        for number in range(3):
            await engine.tasks.send(message(f"more-{number}", task_id=sent.task.task_id))
        with pytest.raises(TaskNotAcceptingMessagesError, match="Too many messages"):
            await engine.tasks.send(message("one-more", task_id=sent.task.task_id))
        go.set()
        async with asyncio.timeout(20):
            assert (await engine.tasks.settled(sent)).state is TaskState.completed
