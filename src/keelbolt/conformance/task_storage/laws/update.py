"""Tasks are written: state, messages, metadata."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import equal, expect, raises
from keelbolt.conformance.task_storage.samples import artifact, bound, loaded, made, message, new, said
from keelbolt.conformance.task_storage.subject import AnyStorage, law
from keelbolt.errors import TaskNotFoundError
from keelbolt.protocol.types import Role, TaskState
from keelbolt.tasks.storage import ArtifactWrite


@law()
async def an_unknown_task_is_not_updated(storage: AnyStorage) -> None:
    """Updating a task that does not exist raises TaskNotFoundError."""
    for state in (TaskState.working, None):
        with raises(TaskNotFoundError):
            await storage.update_task("no-such-task", state, messages=[message()])
    equal(await storage.load_task("no-such-task"), None, "the unknown task")


@law()
async def a_state_is_stored(storage: AnyStorage) -> None:
    """The state of an update becomes the state of the task, with a timestamp."""
    for state in TaskState:
        task = await new(storage)
        await storage.update_task(task.id, state)
        status = (await loaded(storage, task)).status
        equal(status.state, state, "the state")
        expect(status.timestamp, "the status has no timestamp")


@law()
async def no_state_keeps_the_state(storage: AnyStorage) -> None:
    """An update without a state keeps the status with its message."""
    task = await new(storage)
    await storage.update_task(task.id, TaskState.input_required, status_message=bound(task, "Which one?"))
    before = (await loaded(storage, task)).status
    await storage.update_task(
        task.id, messages=[bound(task, "x")], artifacts=[ArtifactWrite(artifact("a", "x"))], task_metadata={"a": 1}
    )
    equal((await loaded(storage, task)).status, before, "the status")


@law()
async def a_status_message_is_in_the_status(storage: AnyStorage) -> None:
    """The status message of an update becomes the message of the status."""
    task = await new(storage)
    await storage.update_task(task.id, TaskState.working, status_message=bound(task, "Looking"))
    stored = (await loaded(storage, task)).status.message
    equal(stored.text if stored else None, "Looking", "the text of the status")


@law()
async def a_status_message_without_a_state_is_ignored(storage: AnyStorage) -> None:
    """Without a state the status message is not stored."""
    task = await new(storage)
    await storage.update_task(task.id, TaskState.working, status_message=bound(task, "Looking"))
    await storage.update_task(task.id, status_message=bound(task, "Found"))
    stored = (await loaded(storage, task)).status.message
    equal(stored.text if stored else None, "Looking", "the text of the status")


@law()
async def a_status_message_is_not_in_the_history(storage: AnyStorage) -> None:
    """The history has only the messages that were written to it, not status messages."""
    task = await new(storage, "1")
    await storage.update_task(task.id, TaskState.working, status_message=bound(task, "2"))
    equal(said(await loaded(storage, task)), ["1"], "the history")


@law()
async def messages_are_added_in_their_order(storage: AnyStorage) -> None:
    """The messages of an update are added after the stored ones, in order."""
    task = await new(storage, "1")
    await storage.update_task(task.id, messages=[bound(task, "2"), bound(task, "3")])
    await storage.update_task(task.id, TaskState.working, messages=[bound(task, "4")])
    equal(said(await loaded(storage, task)), list("1234"), "the history")


@law()
async def messages_are_stored_unchanged(storage: AnyStorage) -> None:
    """The ids, role and metadata of a message are loaded as they were written."""
    task = await new(storage)
    given = bound(task, "x", role=Role.agent).model_copy(update={"metadata": {"a": [1, None]}})
    await storage.update_task(task.id, messages=[given])
    equal((await loaded(storage, task)).history[-1], given, "the stored message")


@law()
async def metadata_are_merged(storage: AnyStorage) -> None:
    """New metadata replace values with the same name and leave the others."""
    task = await new(storage)
    await storage.update_task(task.id, task_metadata={"a": 1, "b": {"x": 1}})
    await storage.update_task(task.id, task_metadata={"b": {"y": 2}, "c": 3})
    equal((await loaded(storage, task)).metadata, {"a": 1, "b": {"y": 2}, "c": 3}, "the metadata")


@law()
async def metadata_are_merged_with_any_update(storage: AnyStorage) -> None:
    """Metadata are merged together with a new state, and later states keep them."""
    task = await new(storage)
    await storage.update_task(task.id, TaskState.working, task_metadata={"a": 1})
    await storage.update_task(task.id, TaskState.completed, task_metadata={"b": 2})
    equal((await loaded(storage, task)).metadata, {"a": 1, "b": 2}, "the metadata")


@law()
async def an_update_writes_everything_at_once(storage: AnyStorage) -> None:
    """State, status message, messages, artifacts and metadata of one update are all stored."""
    task = await new(storage, "1")
    await storage.update_task(
        task.id,
        TaskState.completed,
        status_message=bound(task, "Done"),
        messages=[bound(task, "2")],
        artifacts=[ArtifactWrite(artifact("a", "x"))],
        task_metadata={"a": 1},
    )
    now = await loaded(storage, task)
    equal((now.status.state, said(now), made(now)), (TaskState.completed, ["1", "2"], {"a": ["x"]}), "the task")
    equal((now.metadata, now.status.message.text if now.status.message else None), ({"a": 1}, "Done"), "the rest")


@law()
async def an_empty_update_is_a_write(storage: AnyStorage) -> None:
    """An update without values changes only the version."""
    task = await new(storage)
    before = await loaded(storage, task)
    first = await storage.update_task(task.id)
    second = await storage.update_task(task.id)
    expect(second > first, f"the version went from {first} to {second}")
    equal(await loaded(storage, task), before, "the task")


@law()
async def updates_change_no_other_task(storage: AnyStorage) -> None:
    """An update of one task does not change another task of its context."""
    one, two = await new(storage, "one"), await new(storage, "two")
    before = await loaded(storage, two)
    await storage.update_task(
        one.id, TaskState.completed, messages=[bound(one, "x")], artifacts=[ArtifactWrite(artifact("a", "x"))]
    )
    equal(await loaded(storage, two), before, "the other task")


@law()
async def concurrent_updates_are_all_stored(storage: AnyStorage) -> None:
    """Of concurrent updates without an expected version, none is lost."""
    task = await new(storage, "0")
    await asyncio.gather(
        *(storage.update_task(task.id, messages=[bound(task, str(number))]) for number in range(1, 21)),
        *(storage.update_task(task.id, task_metadata={str(number): number}) for number in range(1, 21)),
        *(
            storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", str(number)), append=True)])
            for number in range(1, 21)
        ),
    )
    now = await loaded(storage, task)
    equal(sorted(map(int, said(now))), list(range(21)), "the messages")
    equal(sorted((now.metadata or {}).values()), list(range(1, 21)), "the metadata")
    equal(sorted(int(text or 0) for text in made(now)["a"]), list(range(1, 21)), "the parts of the artifact")
