"""Tasks are changed: state, messages, metadata and artifacts."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import equal, expect, raises
from keelbolt.conformance.task_storage.subject import AnyStorage, artifact, bound, law, loaded, made, message, new, said
from keelbolt.errors import TaskNotFoundError
from keelbolt.protocol.types import Artifact, Part, Role, TaskState
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


# ------------------------------------------------------------------------------------------------------------ artifacts


@law()
async def an_artifact_is_added(storage: AnyStorage) -> None:
    """An artifact with a new id is added after the others."""
    task = await new(storage)
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "1"))])
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("b", "2", "3"))])
    now = made(await loaded(storage, task))
    equal(now, {"a": ["1"], "b": ["2", "3"]}, "the artifacts")
    equal(list(now), ["a", "b"], "the order of the artifacts")


@law()
async def a_write_without_append_replaces(storage: AnyStorage) -> None:
    """An artifact with a known id replaces the stored one at its position."""
    task = await new(storage)
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "1", "2"))])
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "3"))])
    equal(made(await loaded(storage, task)), {"a": ["3"]}, "the artifacts")


@law()
async def a_write_with_append_adds_parts(storage: AnyStorage) -> None:
    """With append, the parts are added after the stored ones, in order."""
    task = await new(storage)
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "1"))])
    for text in ("2", "3"):
        await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", text), append=True)])
    equal(made(await loaded(storage, task)), {"a": ["1", "2", "3"]}, "the artifacts")


@law()
async def an_append_with_a_new_id_creates_the_artifact(storage: AnyStorage) -> None:
    """With append and a new id, the artifact is created."""
    task = await new(storage)
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "1"), append=True)])
    equal(made(await loaded(storage, task)), {"a": ["1"]}, "the artifacts")


@law()
async def append_and_replace_mix_in_one_update(storage: AnyStorage) -> None:
    """One update can append to one artifact and replace another."""
    task = await new(storage)
    before = [ArtifactWrite(artifact("a", "1")), ArtifactWrite(artifact("b", "1"))]
    await storage.update_task(task.id, artifacts=before)
    writes = [
        ArtifactWrite(artifact("a", "2"), append=True),
        ArtifactWrite(artifact("b", "2")),
        ArtifactWrite(artifact("c", "2")),
    ]
    await storage.update_task(task.id, artifacts=writes)
    equal(made(await loaded(storage, task)), {"a": ["1", "2"], "b": ["2"], "c": ["2"]}, "the artifacts")


@law()
async def writes_of_one_artifact_apply_in_order(storage: AnyStorage) -> None:
    """Several writes of one artifact in one update take effect in their order."""
    task = await new(storage)
    writes = [
        ArtifactWrite(artifact("a", "1")),
        ArtifactWrite(artifact("a", "2"), append=True),
        ArtifactWrite(artifact("a", "3"), append=True),
    ]
    await storage.update_task(task.id, artifacts=writes)
    equal(made(await loaded(storage, task)), {"a": ["1", "2", "3"]}, "the artifacts")


@law()
async def an_artifact_is_stored_unchanged(storage: AnyStorage) -> None:
    """Name, description, metadata, extensions and every kind of part are loaded as they were written."""
    task = await new(storage)
    given = Artifact(
        artifact_id="a",
        name="report.pdf",
        description="What was found",
        metadata={"pages": 3},
        extensions=["https://example.com/x"],
        parts=[
            Part(text="text", metadata={"a": 1}),
            Part(raw=bytes(range(256)), media_type="application/octet-stream", filename="x.bin"),
            Part(url="https://example.com/file"),
            Part(data={"deep": [{"er": None}]}),
        ],
    )
    await storage.update_task(task.id, artifacts=[ArtifactWrite(given)])
    equal((await loaded(storage, task)).artifacts, [given], "the stored artifact")


@law()
async def an_artifact_changed_later_changes_no_task(storage: AnyStorage) -> None:
    """Changes that a caller makes to its artifact after the call are not stored."""
    task = await new(storage)
    given = artifact("a", "1")
    await storage.update_task(task.id, artifacts=[ArtifactWrite(given)])
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "2"), append=True)])
    equal(len(given.parts), 1, "the number of parts of the caller's artifact")
    given.parts.clear()
    equal(made(await loaded(storage, task)), {"a": ["1", "2"]}, "the stored artifact")


@law()
async def many_appends_keep_their_order(storage: AnyStorage) -> None:
    """Six hundred appended chunks are all stored, in order."""
    task = await new(storage)
    for number in range(600):
        await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", str(number)), append=True)])
    equal(made(await loaded(storage, task)), {"a": [str(number) for number in range(600)]}, "the artifact")
