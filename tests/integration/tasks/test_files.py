"""Files of tasks, and messages that find their task by its context. On every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from keelbolt.auth.principal import Principal
from keelbolt.data.erasing import resume_erasures
from keelbolt.errors import CommitRefused
from keelbolt.kernel import Delete, Operation, Receipt
from keelbolt.tasks import Envelope, Sent, TaskContext
from keelbolt.tasks.families import TASKS
from keelbolt.tasks.files import TaskFile, keep_file, open_file
from keelbolt.tasks.sweep import erase_task
from tests.integration.tasks.stage import Stage, message, seen_by

LARGE = bytes(range(256)) * 3000
ADA, BOB = Principal("ada"), Principal("bob")


async def keeps(ctx: TaskContext) -> None:
    file = await ctx.keep_file(LARGE, media_type="image/png", filename="a.png")
    assert file == await ctx.keep_file(LARGE, media_type="image/png", filename="a.png")  # the same bytes: the same file
    await ctx.emit_artifact(file_url=file.path)
    await ctx.complete()


async def test_a_file_is_kept_as_long_as_its_tasks(stage: Stage) -> None:
    engine = await stage.engine(keeps)
    kernel, tasks, digest = engine.kernel, [], ""
    for _ in range(2):
        sent = await engine.tasks.send(message(), Envelope(ADA))
        task = await engine.store.task(await engine.tasks.settled(sent))
        tasks.append(task.id)
        digest = (task.artifacts[0].parts[0].url or "").rpartition("/")[2]
        found = await open_file(kernel.scoped(ADA.partition), task.id, digest)
        assert found is not None
        file, reader = found
        assert file == TaskFile(task.id, digest, len(LARGE), "image/png", "a.png")
        assert await reader.read() == LARGE
        assert await open_file(kernel.scoped(BOB.partition), task.id, digest) is None
        assert await open_file(kernel.scoped(ADA.partition), "another", digest) is None
    await erase_task(engine.store, engine.tasks.scope(ADA), tasks[0])
    assert await open_file(kernel.scoped(ADA.partition), tasks[0], digest) is None
    assert await open_file(kernel.scoped(ADA.partition), tasks[1], digest) is not None  # this task still refers to it
    await erase_task(engine.store, engine.tasks.scope(ADA), tasks[1])
    assert await open_file(kernel.scoped(ADA.partition), tasks[1], digest) is None


async def test_files_of_an_interrupted_erasure_are_removed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit removes the task and must list its files; otherwise no process would find them."""
    engine = await stage.engine(keeps)
    kernel, commit = engine.kernel, engine.kernel.commit
    monkeypatch.setattr("keelbolt.data.erasing.RESUME_SECONDS", 0.0)
    monkeypatch.setattr("keelbolt.data.erasing.BATCH", 1)
    sent = await engine.tasks.send(message(), Envelope(ADA))
    task = await engine.store.task(await engine.tasks.settled(sent))
    digest = (task.artifacts[0].parts[0].url or "").rpartition("/")[2]

    def once(partition: str, *operations: Operation) -> Awaitable[Receipt]:
        if not any(isinstance(each, Delete) and each.collection == TASKS for each in operations):
            raise SystemError("killed")
        return commit(partition, *operations)

    with monkeypatch.context() as patched:
        patched.setattr(kernel, "commit", once)
        with pytest.raises(SystemError):
            await erase_task(engine.store, engine.tasks.scope(ADA), task.id)
    assert await engine.store.find(engine.tasks.scope(ADA), task.id) is None
    assert await resume_erasures(kernel) == 1
    assert await open_file(kernel.scoped(ADA.partition), task.id, digest) is None
    assert await resume_erasures(kernel) == 0


async def test_a_process_that_lost_the_task_can_not_store_a_file(stage: Stage) -> None:
    """A write of a process is refused after another process has claimed its task."""
    began = asyncio.Event()
    held: list[TaskContext] = []

    async def worker(ctx: TaskContext) -> None:
        held.append(ctx)
        if ctx.attempt > 1:
            await ctx.complete()
        else:
            began.set()
            await asyncio.Event().wait()

    first = await stage.engine(worker)
    sent = await first.tasks.send(message(), Envelope(ADA))
    await began.wait()
    fences = held[0]._run.fence()
    await stage.crash(first)
    second = await stage.engine(worker)
    await second.tasks.settled(seen_by(second, Sent(sent.task)))
    with pytest.raises(CommitRefused):
        await keep_file(second.kernel.scoped(ADA.partition), sent.task.record.task_id, b"late", *fences)


async def test_the_waiting_task_of_a_context_is_found(stage: Stage) -> None:
    async def asks(ctx: TaskContext) -> None:
        if ctx.turn == 1 and ctx.user_text == "ask":
            await ctx.request_input("Well?")
        else:
            await ctx.complete(ctx.user_text)

    engine = await stage.engine(asks)
    tasks = engine.tasks
    sent = await tasks.send(message("ask", context_id="talk"), Envelope(ADA))
    asked = (await tasks.settled(sent)).record.task_id
    await tasks.settled(await tasks.send(message("no", context_id="talk"), Envelope(ADA)))
    assert await tasks.waiting("talk", ADA) == asked
    assert await tasks.waiting("talk", BOB) is None
    assert await tasks.waiting("elsewhere", ADA) is None
    words = message("so", context_id="talk")
    assert not await tasks.knows(words, ADA)
    answered = await tasks.send(words, Envelope(ADA), task_id=asked)
    assert (await tasks.settled(answered)).record.task_id == asked
    assert await tasks.waiting("talk", ADA) is None
    assert await tasks.knows(words, ADA)
    repeated = await tasks.send(words, Envelope(ADA))  # sent again after the task stopped waiting
    assert (repeated.repeated, repeated.task.record.task_id) == (True, asked)
