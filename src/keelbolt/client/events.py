"""Results of the client: events of a stream, and a paged list of tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, cast

from keelbolt.errors import A2AResponseError
from keelbolt.protocol.requests import TaskPage
from keelbolt.protocol.types import (
    Artifact,
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

Value = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent


@dataclass(frozen=True, slots=True)
class Event:
    """``value`` is what the agent sent. `subscribe(task_id, after=id)` continues after ``id``, if the agent sends ids.

    A ``snapshot`` is the whole current task in place of the events that led to it: it replaces all data collected
    before, including artifacts. Every other event is new, and comes once. The stream ends after the ``last`` event.
    """

    value: Value
    id: str | None = None
    snapshot: bool = False
    last: bool = False

    @property
    def task(self) -> Task | None:
        return self.value if isinstance(self.value, Task) else None

    @property
    def message(self) -> Message | None:
        """The agent's complete response, or the message of its status."""
        if isinstance(self.value, Message):
            return self.value
        return None if isinstance(self.value, TaskArtifactUpdateEvent) else self.value.status.message

    @property
    def artifact(self) -> Artifact | None:
        return self.value.artifact if isinstance(self.value, TaskArtifactUpdateEvent) else None

    @property
    def state(self) -> TaskState | None:
        """The state of the task; None if this event has no state."""
        return self.value.status.state if isinstance(self.value, Task | TaskStatusUpdateEvent) else None

    @property
    def task_id(self) -> str | None:
        return self.value.id if isinstance(self.value, Task) else self.value.task_id

    @property
    def context_id(self) -> str | None:
        return self.value.context_id

    @property
    def text(self) -> str:
        """The text of a chunk or message; for a task, its artifacts, or `text_of` if it is terminal or paused."""
        if self.artifact is not None:
            return _joined(self.artifact)
        if isinstance(self.value, Task):
            state = self.value.status.state
            return text_of(self.value) if state.terminal or state.paused else _made(self.value)
        return self.message.text if self.message is not None else ""


def text_of(answer: Task | Message) -> str:
    """Return the text of the artifacts, or else of the status, or else of the agent's last message."""
    if isinstance(answer, Message):
        return answer.text
    if made := _made(answer):
        return made
    if answer.status.message is not None and answer.status.message.text:
        return answer.status.message.text
    return next((said.text for said in reversed(answer.history) if said.role is Role.agent and said.text), "")


def _made(task: Task) -> str:
    return "\n".join(filter(None, map(_joined, task.artifacts)))


def _joined(artifact: Artifact) -> str:
    return "".join(part.text for part in artifact.parts if part.text is not None)


# ---------------------------------------------------------------------------------------------------------------- pages


class TaskList:
    """``async for task in tasks`` iterates over all pages; ``await tasks`` returns only the first page."""

    def __init__(self, page: Callable[[str | None], Awaitable[TaskPage]], token: str | None = None) -> None:
        self._page = page
        self._token = token

    def __await__(self) -> Generator[Any, None, TaskPage]:
        return self._page(self._token).__await__()

    async def __aiter__(self) -> AsyncIterator[Task]:
        async for page in self.pages():
            for task in page.tasks:
                yield cast("Task", task)  # client codecs return models

    async def pages(self) -> AsyncIterator[TaskPage]:
        """Yield the pages. Raise A2AResponseError if the agent repeats a page token."""
        token, seen = self._token, set[str]()
        while True:
            page = await self._page(token)
            yield page
            token = page.next_page_token
            if not token:
                return
            if token in seen:
                raise A2AResponseError("the agent repeated a page token in its list of tasks")
            seen.add(token)
