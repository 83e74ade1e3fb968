"""Tasks are created, read and deleted."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import broken, equal, expect, raises
from keelbolt.conformance.task_storage.subject import AnyStorage, artifact, bound, law, loaded, made, message, new, said
from keelbolt.errors import TaskNotFoundError
from keelbolt.protocol.types import Task, TaskState, encode
from keelbolt.tasks.storage import ArtifactWrite, ListTasksQuery
from keelbolt.tasks.storage.contract import overrides


@law()
async def a_new_task_is_submitted(storage: AnyStorage) -> None:
    """A new task has an id, its context, the state submitted and no artifacts."""
    task = await storage.create_task("talk", message())
    expect(task.id, "the new task has no id")
    equal(task.context_id, "talk", "the context of the new task")
    equal(task.status.state, TaskState.submitted, "the state of the new task")
    expect(not task.artifacts, "the new task has artifacts")


@law()
async def a_new_task_has_a_timestamp(storage: AnyStorage) -> None:
    """The status of a new task has a timestamp."""
    task = await new(storage)
    expect(task.status.timestamp, "the status has no timestamp")


@law()
async def the_first_message_is_the_history(storage: AnyStorage) -> None:
    """The history of a new task is its first message."""
    task = await new(storage, "Good morning")
    equal(said(task), ["Good morning"], "the history of the returned task")
    equal(said(await loaded(storage, task)), ["Good morning"], "the history of the task that is stored")


@law()
async def the_stored_message_has_the_ids_of_its_task(storage: AnyStorage) -> None:
    """The message in the history has the ids of its task and context."""
    task = await loaded(storage, await new(storage, context="talk"))
    equal(task.history[0].task_id, task.id, "the task id of the stored message")
    equal(task.history[0].context_id, "talk", "the context id of the stored message")


@law()
async def the_given_message_is_not_changed(storage: AnyStorage) -> None:
    """create_task does not change the caller's message."""
    given = message()
    before = encode(given)
    await storage.create_task("talk", given)
    equal(encode(given), before, "the message of the caller")
    equal(given.task_id, None, "the task id of the caller's message")


@law()
async def a_message_changed_later_changes_no_task(storage: AnyStorage) -> None:
    """Changes that a caller makes to its message after the call are not stored."""
    given = message("first")
    task = await storage.create_task("talk", given)
    given.parts[0].text = "second"
    equal(said(await loaded(storage, task)), ["first"], "the stored history")


@law()
async def every_task_has_its_own_id(storage: AnyStorage) -> None:
    """Without a key, the same message creates another task each time."""
    tasks = await asyncio.gather(*(new(storage, "same") for _ in range(20)))
    equal(len({task.id for task in tasks}), 20, "different ids of twenty tasks")


@law()
async def a_repeated_key_returns_the_first_task(storage: AnyStorage) -> None:
    """The same key in the same context returns the task that it created."""
    first = await storage.create_task("talk", message(), idempotency_key="key")
    again = await storage.create_task("talk", message(), idempotency_key="key")
    equal(again.id, first.id, "the id of the repeated task")


@law()
async def a_repeated_key_changes_nothing(storage: AnyStorage) -> None:
    """A repeated create returns the task in its current state and does not change it."""
    task = await storage.create_task("talk", message("first"), idempotency_key="key")
    await storage.update_task(task.id, TaskState.working, artifacts=[ArtifactWrite(artifact("a", "x"))])
    again = await storage.create_task("talk", message("second"), idempotency_key="key")
    equal(again.status.state, TaskState.working, "the state of the repeated task")
    equal(said(await loaded(storage, task)), ["first"], "the history after the repetition")


@law()
async def keys_belong_to_their_context(storage: AnyStorage) -> None:
    """The same key in another context creates another task."""
    one = await storage.create_task("one", message(), idempotency_key="key")
    two = await storage.create_task("two", message(), idempotency_key="key")
    expect(one.id != two.id, "the key of one context returned the task of another")
    equal((await loaded(storage, two)).context_id, "two", "the context of the second task")


@law()
async def keys_and_contexts_are_not_joined(storage: AnyStorage) -> None:
    """Context and key are separate: moving a character from one to the other creates another task."""
    pairs = [("a", "bc"), ("ab", "c"), ("a:b", "c"), ("a", "b:c"), ("a/b", "c"), ("a", "b/c")]
    tasks = [await storage.create_task(context, message(), idempotency_key=key) for context, key in pairs]
    equal(len({task.id for task in tasks}), len(pairs), "different tasks")


@law()
async def different_keys_create_different_tasks(storage: AnyStorage) -> None:
    """Another key in the same context creates another task."""
    tasks = [await storage.create_task("talk", message(), idempotency_key=key) for key in ("a", "b", "A", "")]
    equal(len({task.id for task in tasks}), 4, "different tasks of four keys")


@law()
async def concurrent_creates_with_one_key_create_one_task(storage: AnyStorage) -> None:
    """Twenty concurrent creates with one key create one task, and all return it."""
    calls = (storage.create_task("talk", message(), idempotency_key="key") for _ in range(20))
    tasks = await asyncio.gather(*calls)
    equal(len({task.id for task in tasks}), 1, "different tasks of one key")
    equal(said(await loaded(storage, tasks[0])), ["Hello"], "the history of the one task")


# ----------------------------------------------------------------------------------------------------------------- load


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


# ------------------------------------------------------------------------------------------------------------- deleting


@law("delete_task")
async def a_deleted_task_is_gone(storage: AnyStorage) -> None:
    """After delete_task the task can be neither loaded nor updated."""
    task = await new(storage)
    await storage.update_task(task.id, TaskState.completed, artifacts=[ArtifactWrite(artifact("a", "x"))])
    equal(await storage.delete_task(task.id), True, "the result of delete_task")
    equal(await storage.load_task(task.id), None, "the deleted task")
    for state in (TaskState.working, None):
        with raises(TaskNotFoundError):
            await storage.update_task(task.id, state, messages=[bound(task, "x")])
    equal(await storage.load_task(task.id), None, "the deleted task after an update")


@law("delete_task")
async def deleting_an_unknown_task_returns_false(storage: AnyStorage) -> None:
    """Deleting an unknown task, or deleting a task a second time, returns False."""
    task = await new(storage)
    equal(await storage.delete_task("no-such-task"), False, "the result for an unknown task")
    await storage.delete_task(task.id)
    equal(await storage.delete_task(task.id), False, "the result of the second call")


@law("delete_task")
async def deleting_a_task_leaves_the_others(storage: AnyStorage) -> None:
    """Deleting a task leaves the other tasks of its context."""
    one, two = await new(storage, "one"), await new(storage, "two")
    await storage.delete_task(one.id)
    equal(said(await loaded(storage, two)), ["two"], "the other task")


@law("delete_task")
async def the_key_of_a_deleted_task_is_free(storage: AnyStorage) -> None:
    """The idempotency key of a deleted task creates a new one."""
    first = await storage.create_task("talk", message("first"), idempotency_key="key")
    await storage.delete_task(first.id)
    second = await storage.create_task("talk", message("second"), idempotency_key="key")
    expect(second.id != first.id, "create_task returned the deleted task")
    equal(said(await loaded(storage, second)), ["second"], "the history of the new task")


@law("delete_task")
async def a_deleted_task_is_not_listed(storage: AnyStorage) -> None:
    """A deleted task is neither listed nor counted, and has no version."""
    one, two = await new(storage, "one"), await new(storage, "two")
    await storage.delete_task(one.id)
    equal(await storage.get_version(one.id), None, "the version of the deleted task")
    if overrides(storage, "list_tasks"):
        page = await storage.list_tasks(ListTasksQuery())
        equal(([task.id for task in page.tasks], page.total_size), ([two.id], 1), "the list")


@law("delete_task")
async def a_task_is_deleted_once(storage: AnyStorage) -> None:
    """Of ten concurrent deletes, one returns True."""
    task = await new(storage)
    answers = await asyncio.gather(*(storage.delete_task(task.id) for _ in range(10)))
    equal(answers.count(True), 1, "the number of successful deletes")


@law("delete_context")
async def a_deleted_context_has_no_tasks(storage: AnyStorage) -> None:
    """delete_context deletes all tasks of the context and returns their number."""
    tasks = [await new(storage, str(number), context="one") for number in range(5)]
    equal(await storage.delete_context("one"), 5, "the result of delete_context")
    for task in tasks:
        equal(await storage.load_task(task.id), None, "a task of the deleted context")
    equal(await storage.delete_context("one"), 0, "the result of the second call")


@law("delete_context")
async def deleting_a_context_leaves_the_others(storage: AnyStorage) -> None:
    """delete_context leaves the tasks of other contexts, also those with similar names."""
    others = [await new(storage, context=name) for name in ("one more", "on", "One", "%")]
    await new(storage, context="one")
    equal(await storage.delete_context("one"), 1, "the result of delete_context")
    equal(await storage.delete_context("no-such-context"), 0, "the result for an unknown context")
    for task in others:
        await loaded(storage, task)


@law("delete_context")
async def the_keys_of_a_deleted_context_are_free(storage: AnyStorage) -> None:
    """The idempotency keys of a deleted context create new tasks."""
    first = await storage.create_task("one", message(), idempotency_key="key")
    await storage.delete_context("one")
    second = await storage.create_task("one", message(), idempotency_key="key")
    expect(second.id != first.id, "create_task returned the deleted task")
    await loaded(storage, second)
