"""Where tasks are kept, as a user of a server sees it: three methods to write, the rest optional.

`keelbolt.conformance.task_storage` checks every sentence of it on a storage of your own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self

from typing_extensions import TypeVar

from keelbolt.protocol.types import Artifact, Message, Task, TaskState
from keelbolt.tasks.queries import ListTasksQuery, ListTasksResult

ContextT = TypeVar("ContextT", default=Any)


@dataclass(frozen=True)
class ArtifactWrite:
    """An artifact to be written: in the place of what its id had before, or, with ``append``, its parts behind that."""

    artifact: Artifact
    append: bool = False


class Storage(ABC, Generic[ContextT]):
    """Tasks with their artifacts and messages, and one value of type ``ContextT`` per context.

    A storage reads and writes, and guards what must hold whoever writes: ended tasks stay ended, and a write that
    expects another version is refused. What may be done when (roles, transitions, contexts) is decided above it.

    Subclasses must have `load_task`, `create_task` and `update_task`. Whoever reads after a write sees it.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        return None

    # -------------------------------------------------------------------------------------------------- to be written

    @abstractmethod
    async def load_task(
        self, task_id: str, history_length: int | None = None, *, include_artifacts: bool = True
    ) -> Task | None:
        """The task, or None. ``history_length`` is how many of the last messages come with it (None: all)."""

    @abstractmethod
    async def create_task(self, context_id: str, message: Message, *, idempotency_key: str | None = None) -> Task:
        """A new task, submitted, with this message as its history.

        The message itself must not be changed: what is stored is a copy that carries the ids of task and context. If
        this context has a task with the same ``idempotency_key``, that one is answered as it is, and nothing is made;
        of any number of callers at the same time, one makes the task.
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
        """Write all of this, or nothing; answers the version of the task, which is new with every write.

        Without ``state`` the status stays as it is, and ``status_message`` is ignored; with it, the message stands in
        the status. ``messages`` are added to the history as they are: their ids are the caller's business.
        ``task_metadata`` is merged into the task's.

        Raises TaskNotFoundError; ConcurrencyError when the task is at another version than ``expected_version``; and
        TaskTerminalStateError when a ``state`` is given and the task has ended, so that of two writers who end a task
        the first wins. Without ``state``, ended tasks are written to like others.
        """

    # ------------------------------------------------------------------------------------------------------- optional

    async def list_tasks(self, query: ListTasksQuery) -> ListTasksResult:  # noqa: ARG002
        """A page of the tasks that match, newest status first. Unless overridden: an empty one."""
        return ListTasksResult()

    async def delete_task(self, task_id: str) -> bool:
        """Delete the task; answers whether there was one."""
        raise NotImplementedError(f"{type(self).__name__} can't delete tasks")

    async def delete_context(self, context_id: str) -> int:
        """Delete all tasks of a context; answers how many there were."""
        raise NotImplementedError(f"{type(self).__name__} can't delete contexts")

    async def get_version(self, task_id: str) -> int | None:  # noqa: ARG002
        """The version of the task; None if there is no such task, or (unless overridden) no such thing as versions."""
        return None

    async def load_context(self, context_id: str) -> ContextT | None:  # noqa: ARG002
        """What is kept about a context, or None. Unless overridden, nothing is."""
        return None

    async def update_context(self, context_id: str, context: ContextT) -> int | None:  # noqa: ARG002
        """Keep this about a context, in the place of what was there. Unless overridden, nothing happens.

        A storage with versions of contexts answers the new one, and has two things more, so that of two who change a
        context at once neither is lost: ``update_context(…, version=…)``, and ``load_context_version``.
        """
        return None

    async def health_check(self) -> dict[str, Any]:
        """Return whether it works: ``{"status": "ok"}``, or another status, with the reason as ``detail``."""
        return {"status": "ok"}


def overrides(storage: Storage[Any] | type[Storage[Any]], method: str) -> bool:
    """Whether this storage has a method of its own in the place of the default."""
    kind = storage if isinstance(storage, type) else type(storage)
    return getattr(kind, method) is not getattr(Storage, method)
