"""Tasks are made."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.task_storage.samples import artifact, loaded, message, new, said
from keelbolt.conformance.task_storage.subject import AnyStorage, law
from keelbolt.protocol.types import TaskState, encode
from keelbolt.tasks.storage import ArtifactWrite


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
