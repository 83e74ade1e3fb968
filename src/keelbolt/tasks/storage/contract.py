"""The contract of a task storage: three methods to implement, the rest optional.

`keelbolt.conformance.task_storage` checks every sentence of it on a storage of your own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self

from typing_extensions import TypeVar

from keelbolt.protocol.types import Artifact, Message, Task, TaskState
from keelbolt.tasks.listing import ListTasksQuery, ListTasksResult

ContextT = TypeVar("ContextT", default=Any)


@dataclass(frozen=True)
class ArtifactWrite:
    """An artifact to write: it replaces the one with the same id, or with ``append`` adds its parts to it."""

    artifact: Artifact
    append: bool = False


class Storage(ABC, Generic[ContextT]):
    """Tasks with their artifacts and messages, and one value of type ``ContextT`` per context.

    A storage reads and writes, and enforces two rules for every writer: ended tasks stay ended, and a write that
    expects another version is refused. The layer above decides about roles, transitions and contexts.

    Subclasses must implement `load_task`, `create_task` and `update_task`. A read after a write sees it.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        return None

    # ------------------------------------------------------------------------------------------------------- required

    @abstractmethod
    async def load_task(
        self, task_id: str, history_length: int | None = None, *, include_artifacts: bool = True
    ) -> Task | None:
        """Return the task, or None. ``history_length`` is the number of last messages that come with it (None: all)."""

    @abstractmethod
    async def create_task(self, context_id: str, message: Message, *, idempotency_key: str | None = None) -> Task:
        """Create a submitted task, with this message as its history, and return it.

        The message itself must not be changed: store a copy that has the ids of task and context. If this context has a
        task with the same ``idempotency_key``, return that task as it is and create nothing; of any number of
        concurrent callers, one creates the task.
        """

    @abstractmethod
    async def update_task(
        self,
        task_id: str,
        state: TaskState | None = None,
        *,
        status_message: Message | None = None,
        artifacts: list[ArtifactWrite] | None = None,
        messages: list[Message] | None = None,
        task_metadata: dict[str, Any] | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Write all of this, or nothing; return the version of the task, which is new with every write.

        Without ``state`` the status does not change, and ``status_message`` is ignored; with it, the message is part of
        the status. ``messages`` are added to the history as they are; the caller sets their ids. ``task_metadata`` is
        merged into the task's.

        Raises TaskNotFoundError; ConcurrencyError if the task is at another version than ``expected_version``; and
        TaskTerminalStateError if a ``state`` is given and the task has ended, so that of two writers that end a task
        the first wins. Without ``state``, ended tasks can be written like others.
        """

    # ------------------------------------------------------------------------------------------------------- optional

    async def list_tasks(self, query: ListTasksQuery) -> ListTasksResult:  # noqa: ARG002
        """Return a page of the matching tasks, newest status first. Default: an empty page."""
        return ListTasksResult()

    async def delete_task(self, task_id: str) -> bool:
        """Delete the task; return whether there was one."""
        raise NotImplementedError(f"{type(self).__name__} can't delete tasks")

    async def delete_context(self, context_id: str) -> int:
        """Delete all tasks of a context; return their number."""
        raise NotImplementedError(f"{type(self).__name__} can't delete contexts")

    async def get_version(self, task_id: str) -> int | None:  # noqa: ARG002
        """Return the version of the task; None if there is no such task, or (by default) if there are no versions."""
        return None

    async def load_context(self, context_id: str) -> ContextT | None:  # noqa: ARG002
        """Return the value of a context, or None. Default: None."""
        return None

    async def update_context(self, context_id: str, context: ContextT) -> int | None:  # noqa: ARG002
        """Store the value of a context, replacing the old one. Default: do nothing.

        A storage with versions of contexts returns the new version. It also has ``update_context(…, version=…)`` and
        ``load_context_version``, so that no concurrent change is lost.
        """
        return None

    async def health_check(self) -> dict[str, Any]:
        """Return its health: ``{"status": "ok"}``, or another status, with the reason as ``detail``."""
        return {"status": "ok"}


def overrides(storage: Storage[Any] | type[Storage[Any]], method: str) -> bool:
    """Return whether this storage overrides the default method."""
    kind = storage if isinstance(storage, type) else type(storage)
    return getattr(kind, method) is not getattr(Storage, method)
