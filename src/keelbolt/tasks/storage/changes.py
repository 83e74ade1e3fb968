"""The writes of one update: its notes, and its changes to the record. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from keelbolt.errors import InvalidAgentResponseError, InvalidTaskRequest
from keelbolt.protocol.types import Artifact, Message, TaskState, WireModel, encode
from keelbolt.tasks.json import json_bytes
from keelbolt.tasks.notes import ArtifactNote, MessageNote, Note, OtherNote, StatusNote
from keelbolt.tasks.record import TaskRecord
from keelbolt.tasks.storage.contract import ArtifactWrite

_NESTED = b"[[[[[[[[%b]]]]]]]]"  # the maximum depth of a value inside a task


@dataclass(frozen=True, slots=True)
class Change:
    """An update of a task, encoded at the call: later changes of the caller's objects have no effect."""

    state: TaskState | None
    status_message: bytes | None
    appended: tuple[Note, ...]
    metadata: dict[str, Any] | None

    @classmethod
    def of(
        cls,
        state: TaskState | None,
        status_message: Message | None,
        artifacts: Sequence[ArtifactWrite] | None,
        messages: Sequence[Message] | None,
        task_metadata: dict[str, Any] | None,
    ) -> Change:
        """Encode an update. Raises InvalidTaskRequest."""
        said = None
        if state is not None:
            state = _state(state)
            if status_message is not None:
                said = json_of(status_message, "the status message")
        appended: list[Note] = [MessageNote(json_of(message, "a message")) for message in messages or ()]
        appended += [artifact_note(write.artifact, append=write.append) for write in artifacts or ()]
        metadata = from_json(json_of(task_metadata, "the metadata")) if task_metadata else None
        return cls(state, said, tuple(appended), metadata)

    @property
    def appends_only(self) -> bool:
        """Whether the record does not change."""
        return self.state is None and self.metadata is None

    def __len__(self) -> int:
        return max(1, len(self.appended) + (self.state is not None) + (self.metadata is not None))

    def notes(self, now: str) -> list[Note]:
        """Return the notes for the log. The status comes last, so that no note of a turn follows its end."""
        notes = list(self.appended)
        if self.metadata is not None:
            notes.append(OtherNote("metadata", self.metadata))
        if self.state is not None:
            notes.append(StatusNote.of(self.state, now, self.status_message))
        return notes or [OtherNote("touch", {})]

    def write(self, record: TaskRecord, notes: Sequence[Note], now: int) -> None:
        """Update the record."""
        if self.metadata is not None:
            record.metadata = {**record.metadata, **self.metadata}
        last = notes[-1]
        if self.state is not None and isinstance(last, StatusNote):
            record.state, record.status, record.updated = self.state, last.status, now


def artifact_note(artifact: Artifact, *, append: bool) -> ArtifactNote:
    text = json_of(artifact, "an artifact")
    body = from_json(text)
    parts = json_bytes(body.pop("parts"), "an artifact")[1:-1]
    about = {"artifactId": body.pop("artifactId"), **body}
    return ArtifactNote(artifact.artifact_id, json_bytes(about, "an artifact")[1:-1], parts, append)


def json_of(value: Any, what: str) -> bytes:
    """Return the JSON of a model or another value; raise InvalidTaskRequest."""
    try:
        text = encode(value) if isinstance(value, WireModel) else json_bytes(value, what)
        from_json(_NESTED % text)  # a value that is too deep to be decoded would break the task, and every list with it
    except (InvalidAgentResponseError, ValueError) as error:
        raise InvalidTaskRequest(f"{what} is not JSON: {str(error).splitlines()[0][:200]}") from None
    return text


def _state(state: TaskState) -> TaskState:
    try:
        return TaskState(state)
    except ValueError:
        raise InvalidTaskRequest(f"{state!r} is not a state of a task") from None
