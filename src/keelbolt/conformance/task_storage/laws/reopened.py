"""Laws of a storage that is reopened at the same place."""

from __future__ import annotations

from keelbolt.conformance.expect import equal, raises
from keelbolt.conformance.task_storage.samples import artifact, bound, loaded, made, message, new, said
from keelbolt.conformance.task_storage.subject import TaskStoragePlace, place_law
from keelbolt.errors import ConcurrencyError, TaskTerminalStateError
from keelbolt.protocol.types import TaskState
from keelbolt.tasks.storage import ArtifactWrite


@place_law("persistent")
async def tasks_survive(place: TaskStoragePlace) -> None:
    """A task is loaded completely after a reopen."""
    async with place.open() as storage:
        task = await new(storage, "1")
        await storage.update_task(
            task.id,
            TaskState.completed,
            status_message=bound(task, "Done"),
            messages=[bound(task, "2")],
            artifacts=[ArtifactWrite(artifact("a", "x"))],
            task_metadata={"a": 1},
        )
        before = await loaded(storage, task)
    async with place.open() as storage:
        after = await loaded(storage, task)
        equal((said(after), made(after)), (["1", "2"], {"a": ["x"]}), "history and artifacts")
        equal(after, before, "the task")


@place_law("persistent")
async def guards_survive(place: TaskStoragePlace) -> None:
    """Terminal states and versions are guarded after a reopen."""
    async with place.open() as storage:
        ended, running = await new(storage), await new(storage)
        await storage.update_task(ended.id, TaskState.canceled)
        stale = await storage.update_task(running.id, TaskState.working)
        version = await storage.update_task(running.id, task_metadata={"a": 1})
    async with place.open() as storage:
        with raises(TaskTerminalStateError):
            await storage.update_task(ended.id, TaskState.completed)
        with raises(ConcurrencyError):
            await storage.update_task(running.id, TaskState.completed, expected_version=stale)
        await storage.update_task(running.id, TaskState.completed, expected_version=version)


@place_law("persistent")
async def keys_survive(place: TaskStoragePlace) -> None:
    """An idempotency key returns its task after a reopen."""
    async with place.open() as storage:
        task = await storage.create_task("talk", message(), idempotency_key="key")
    async with place.open() as storage:
        again = await storage.create_task("talk", message(), idempotency_key="key")
        equal(again.id, task.id, "the id of the repeated task")
