"""Sample messages, artifacts and tasks."""

from __future__ import annotations

from keelbolt.conformance.expect import broken, expect
from keelbolt.conformance.task_storage.subject import AnyStorage
from keelbolt.protocol.types import Artifact, Message, Part, Role, Task


def message(text: str = "Hello", *, message_id: str | None = None, role: Role = Role.user) -> Message:
    return Message(message_id=message_id or f"message {text}", role=role, parts=[Part(text=text)])


def bound(task: Task, text: str, *, role: Role = Role.agent) -> Message:
    """A message of this task."""
    return message(text, role=role).model_copy(update={"task_id": task.id, "context_id": task.context_id})


def artifact(artifact_id: str, *texts: str) -> Artifact:
    return Artifact(artifact_id=artifact_id, parts=[Part(text=text) for text in texts])


def said(task: Task) -> list[str]:
    """The texts of the history."""
    return [entry.text for entry in task.history]


def made(task: Task) -> dict[str, list[str | None]]:
    """The texts of the artifacts."""
    return {entry.artifact_id: [part.text for part in entry.parts] for entry in task.artifacts}


async def new(storage: AnyStorage, text: str = "Hello", *, context: str = "context") -> Task:
    """A new task."""
    return await storage.create_task(context, message(text))


async def loaded(storage: AnyStorage, task: Task) -> Task:
    """The task as it is stored now."""
    found = await storage.load_task(task.id)
    if found is None:
        broken(f"task {task.id} can't be loaded")
    expect(found.id == task.id, f"load_task({task.id!r}) returned the task {found.id!r}")
    return found
