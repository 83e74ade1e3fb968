"""The storage of tasks that the suite checks, and sample messages, artifacts and tasks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from keelbolt.conformance.expect import broken, expect
from keelbolt.conformance.suite import ConformancePlace, ConformanceSubject, Suite
from keelbolt.errors import InvalidValue
from keelbolt.protocol.types import Artifact, Message, Part, Role, Task
from keelbolt.tasks.storage import Storage
from keelbolt.tasks.storage.contract import overrides


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


# -------------------------------------------------------------------------------------------------------------- subject


AnyStorage = Storage[Any]


@dataclass(frozen=True, slots=True)
class TaskStoragePlace(ConformancePlace["TaskStorageSubject"]):
    """One set of tasks."""

    def open(self) -> AbstractAsyncContextManager[AnyStorage]:
        """A storage on the data of this place."""
        return self.subject.make(self)


@dataclass(frozen=True, slots=True)
class TaskStorageSubject(ConformanceSubject[TaskStoragePlace]):
    """A storage to check; ``make(place)`` returns one that is not entered.

    ``kind`` is its class: the laws of an optional method apply if the class overrides the method.
    """

    make: Callable[[TaskStoragePlace], AnyStorage]
    kind: type[AnyStorage]

    place_class: ClassVar[type[TaskStoragePlace]] = TaskStoragePlace

    def has(self, needs: str) -> bool:
        return overrides(self.kind, needs) if hasattr(Storage, needs) else hasattr(self.kind, needs)

    def describe(self, needs: str) -> str:
        return f"{needs} of its own"

    @classmethod
    def from_factory(cls, factory: Callable[..., Any], name: str) -> Self:
        """The subject that the factory returns, or a subject whose storages it returns."""
        made = factory()
        if isinstance(made, cls):
            return made
        if not isinstance(made, Storage):
            raise InvalidValue(
                f"{name} returned {type(made).__name__}; it must return a TaskStorageSubject or a Storage"
            )
        return cls(name, lambda _place: factory(), type(made))


SUITE: Suite[TaskStoragePlace, AnyStorage] = Suite(
    "Laws of task storages", TaskStorageSubject, "keelbolt.conformance.task_storage.laws"
)
law, place_law = SUITE.law, SUITE.place_law
