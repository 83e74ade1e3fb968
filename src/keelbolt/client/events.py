"""An event of a stream as the caller gets it."""

from __future__ import annotations

from dataclasses import dataclass

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
    """``value`` is what the agent sent; `subscribe(task_id, after=id)` continues after ``id``, where the agent has ids.

    A ``snapshot`` is the whole task as it is now, in place of the events that led there: it replaces what was gathered
    before, artifacts included. Every other event is new, and comes once. The stream ends after the ``last`` event.
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
        """The agent's whole answer, or what it says about its status."""
        if isinstance(self.value, Message):
            return self.value
        return None if isinstance(self.value, TaskArtifactUpdateEvent) else self.value.status.message

    @property
    def artifact(self) -> Artifact | None:
        return self.value.artifact if isinstance(self.value, TaskArtifactUpdateEvent) else None

    @property
    def state(self) -> TaskState | None:
        """Where the task stands now; None when this event does not say."""
        return self.value.status.state if isinstance(self.value, Task | TaskStatusUpdateEvent) else None

    @property
    def task_id(self) -> str | None:
        return self.value.id if isinstance(self.value, Task) else self.value.task_id

    @property
    def context_id(self) -> str | None:
        return self.value.context_id

    @property
    def text(self) -> str:
        """The text of a chunk or a message; of a task its artifacts, or `text_of` it once it is over or waits."""
        if self.artifact is not None:
            return _joined(self.artifact)
        if isinstance(self.value, Task):
            state = self.value.status.state
            return text_of(self.value) if state.terminal or state.paused else _made(self.value)
        return self.message.text if self.message is not None else ""


def text_of(answer: Task | Message) -> str:
    """The text of an answer: of its artifacts, or else of its status, or else of the agent's last message."""
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
