"""An event of a stream, as the one who follows it sees it."""

from __future__ import annotations

from dataclasses import dataclass

from keelbolt.protocol.types import Artifact, Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent

Value = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent


@dataclass(frozen=True, slots=True)
class Event:
    """``value`` is what came; ``id`` is what `subscribe(task_id, after=id)` goes on after, where the agent has ids.

    A ``snapshot`` is the whole task as it is now, in place of the events that led there: it replaces what was gathered
    before, artifacts included. Every other event is new, and comes once.
    """

    value: Value
    id: str | None = None
    snapshot: bool = False

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
        """The text in it: of a chunk, of a message, or all that a snapshot holds."""
        if self.artifact is not None:
            return "".join(part.text for part in self.artifact.parts if part.text is not None)
        if isinstance(self.value, Task):
            return text_of(self.value)
        return self.message.text if self.message is not None else ""

    @property
    def last(self) -> bool:
        """Nothing comes after it."""
        return isinstance(self.value, Message) or (self.state is not None and self.state.terminal)


def text_of(answer: Task | Message) -> str:
    """All text that an agent answered: of its artifacts, or else of its message."""
    if isinstance(answer, Message):
        return answer.text
    chunks = ["".join(part.text for part in made.parts if part.text is not None) for made in answer.artifacts]
    if any(chunks):
        return "\n".join(filter(None, chunks))
    return answer.status.message.text if answer.status.message is not None else ""
