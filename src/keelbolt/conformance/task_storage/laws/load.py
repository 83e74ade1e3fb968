"""Tasks are read."""

from __future__ import annotations

from keelbolt.conformance.expect import broken, equal, expect
from keelbolt.conformance.task_storage.samples import artifact, bound, loaded, made, new, said
from keelbolt.conformance.task_storage.subject import AnyStorage, law
from keelbolt.protocol.types import Task, TaskState
from keelbolt.tasks.storage import ArtifactWrite


async def _talk(storage: AnyStorage) -> Task:
    """A task with five messages and an artifact."""
    task = await new(storage, "1")
    messages = [bound(task, text) for text in "2345"]
    await storage.update_task(task.id, messages=messages, artifacts=[ArtifactWrite(artifact("a", "x"))])
    return task


async def _with(storage: AnyStorage, task: Task, length: int | None, *, artifacts: bool = True) -> Task:
    found = await storage.load_task(task.id, length, include_artifacts=artifacts)
    if found is None:
        broken(f"task {task.id} can't be loaded")
    return found


@law()
async def an_unknown_task_is_none(storage: AnyStorage) -> None:
    """Loading an unknown task returns None."""
    await new(storage)
    equal(await storage.load_task("no-such-task"), None, "the unknown task")


@law()
async def a_created_task_can_be_loaded_at_once(storage: AnyStorage) -> None:
    """A load after a create sees the task."""
    task = await new(storage)
    equal((await loaded(storage, task)).status, task.status, "the status of the loaded task")


@law()
async def a_load_after_an_update_sees_it(storage: AnyStorage) -> None:
    """Each load sees every update before it."""
    task = await new(storage)
    for number in range(10):
        await storage.update_task(task.id, task_metadata={"number": number})
        equal((await loaded(storage, task)).metadata, {"number": number}, "the metadata right after the update")


@law()
async def without_a_length_the_history_is_complete(storage: AnyStorage) -> None:
    """Without history_length, all messages are loaded, oldest first."""
    equal(said(await _with(storage, await _talk(storage), None)), list("12345"), "the history")


@law()
async def history_length_loads_the_last_messages(storage: AnyStorage) -> None:
    """With history_length, only that many last messages are loaded, oldest first."""
    equal(said(await _with(storage, await _talk(storage), 2)), list("45"), "the last two messages")


@law()
async def history_length_zero_is_no_history(storage: AnyStorage) -> None:
    """With history_length 0, no message is loaded."""
    equal(said(await _with(storage, await _talk(storage), 0)), [], "the history")


@law()
async def history_length_may_exceed_the_history(storage: AnyStorage) -> None:
    """With a history_length beyond the history, all messages are loaded."""
    equal(said(await _with(storage, await _talk(storage), 1000)), list("12345"), "the history")


@law()
async def a_short_load_removes_nothing(storage: AnyStorage) -> None:
    """A load with history_length does not change the stored history."""
    task = await _talk(storage)
    await _with(storage, task, 1, artifacts=False)
    whole = await loaded(storage, task)
    equal((said(whole), made(whole)), (list("12345"), {"a": ["x"]}), "the task after a short load")


@law()
async def artifacts_can_be_left_out(storage: AnyStorage) -> None:
    """Without include_artifacts, a task is loaded without artifacts and with everything else."""
    task = await _with(storage, await _talk(storage), None, artifacts=False)
    equal(made(task), {}, "the artifacts")
    equal(said(task), list("12345"), "the history")


@law()
async def a_loaded_task_is_a_copy(storage: AnyStorage) -> None:
    """Changes that a caller makes to a loaded task are not stored."""
    task = await _talk(storage)
    mine = await loaded(storage, task)
    mine.status.state = TaskState.failed
    mine.history.clear()
    mine.artifacts[0].parts.clear()
    mine.metadata = {"mine": True}
    theirs = await loaded(storage, task)
    equal(theirs.status.state, TaskState.submitted, "the stored state")
    equal((said(theirs), made(theirs)), (list("12345"), {"a": ["x"]}), "the stored task")
    expect(not theirs.metadata, "the metadata of a loaded task were stored")
