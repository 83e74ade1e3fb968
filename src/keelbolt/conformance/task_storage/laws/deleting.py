"""Tasks are deleted."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import equal, expect, raises
from keelbolt.conformance.task_storage.samples import artifact, bound, loaded, message, new, said
from keelbolt.conformance.task_storage.subject import AnyStorage, law
from keelbolt.errors import TaskNotFoundError
from keelbolt.protocol.types import TaskState
from keelbolt.tasks.storage import ArtifactWrite, ListTasksQuery
from keelbolt.tasks.storage.contract import overrides


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
