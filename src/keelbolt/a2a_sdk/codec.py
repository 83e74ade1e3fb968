"""Converts between the SDK's protobuf messages, the stored JSON (both are A2A 1.0) and notes of a task's log."""

from __future__ import annotations

from typing import Any

from a2a.types.a2a_pb2 import (
    Artifact,
    ListTasksResponse,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)
from a2a.types.a2a_pb2 import TaskState as _States
from google.protobuf.json_format import MessageToDict, Parse
from google.protobuf.message import Message as Protobuf
from pydantic_core import to_json

from keelbolt.protocol.types import TaskState, timestamp
from keelbolt.tasks.notes import ArtifactNote, MessageNote, Note, OtherNote, StatusNote
from keelbolt.tasks.view import TaskView

Event = Any  # the SDK's union: Task, Message, TaskStatusUpdateEvent or TaskArtifactUpdateEvent


def to_dict(message: Protobuf) -> dict[str, Any]:
    """Convert a message to JSON with camelCase names."""
    found: dict[str, Any] = MessageToDict(message)
    return found


def encoded(message: Protobuf) -> bytes:
    return to_json(to_dict(message))


def task_of(text: bytes) -> Task:
    found: Task = Parse(text, Task())
    return found


def tasks_of(text: bytes) -> ListTasksResponse:
    found: ListTasksResponse = Parse(text, ListTasksResponse())
    return found


def event_of(text: bytes) -> Event:
    """Return the event in a stream response."""
    response = Parse(text, StreamResponse())
    return getattr(response, response.WhichOneof("payload"))


def state_of(task: Task) -> TaskState:
    """Return the state of a task; submitted if it has none."""
    return state_named(task.status.state) or TaskState.submitted


def state_named(number: int) -> TaskState | None:
    """Return the state with this protobuf number; None if it is not set."""
    return TaskState(_States.Name(number)) if number else None


# ---------------------------------------------------------------------------------------------------------------- notes


def new_notes(task: Task, *, now: int) -> list[Note]:
    """Return the notes of a new task."""
    notes: list[Note] = [MessageNote(encoded(message)) for message in task.history]
    notes += [_artifact(artifact) for artifact in task.artifacts]
    if len(task.metadata):
        notes.append(OtherNote("metadata", to_dict(task.metadata)))
    return [*notes, _status(task, now)]


def event_notes(task: Task, event: Event, view: TaskView, *, now: int) -> list[Note]:
    """Return the notes of an event, relative to the view. The cost depends only on the event."""
    known = sum(view.history.segments) + len(view.history.tail)
    notes: list[Note] = [MessageNote(encoded(message)) for message in task.history[known:]]
    if isinstance(event, TaskArtifactUpdateEvent):
        append = event.append and event.artifact.artifact_id in view.artifacts
        artifact = _chunk(event.artifact, task) if append else event.artifact
        notes.append(_artifact(artifact, append=append, last=event.last_chunk, metadata=_metadata(event)))
    changed = _changed(to_dict(task.metadata), view.metadata)
    if changed:
        notes.append(OtherNote("metadata", changed))
    if isinstance(event, TaskStatusUpdateEvent):
        notes.append(_status(task, now, _metadata(event)))
    elif state_of(task) is not view.state:
        notes.append(_status(task, now))
    return notes or [OtherNote("touch", {})]


def _chunk(chunk: Artifact, task: Task) -> Artifact:
    """Return a chunk with the members that the artifact has after it: the SDK merges metadata, and keeps the others."""
    whole = next((each for each in task.artifacts if each.artifact_id == chunk.artifact_id), chunk)
    return Artifact(
        artifact_id=chunk.artifact_id,
        name=whole.name if chunk.name else "",
        description=whole.description if chunk.description else "",
        parts=chunk.parts,
        metadata=whole.metadata if len(chunk.metadata) else None,
        extensions=whole.extensions if chunk.extensions else (),
    )


def _metadata(event: TaskArtifactUpdateEvent | TaskStatusUpdateEvent) -> bytes | None:
    return encoded(event.metadata) if len(event.metadata) else None


def whole_notes(task: Task, stored: Task, *, now: int) -> list[Note]:
    """Return the notes that turn the stored task into this task.

    A save without an event is compared with the stored task, because the previous task that the SDK passes is often
    the same object, already changed.
    """
    notes: list[Note] = [MessageNote(encoded(message)) for message in task.history[len(stored.history) :]]
    known = {artifact.artifact_id: artifact for artifact in stored.artifacts}
    for artifact in task.artifacts:
        old = known.get(artifact.artifact_id)
        if old is None:
            notes.append(_artifact(artifact))
        elif old != artifact:
            notes.append(_grown(old, artifact))
    changed = _changed(to_dict(task.metadata), to_dict(stored.metadata))
    if changed:
        notes.append(OtherNote("metadata", changed))
    if task.status != stored.status:
        notes.append(_status(task, now))
    return notes or [OtherNote("touch", {})]


def _grown(old: Artifact, artifact: Artifact) -> ArtifactNote:
    count = len(old.parts)
    grown = Artifact()
    grown.CopyFrom(old)
    grown.parts.extend(artifact.parts[count:])
    if len(artifact.parts) > count and grown == artifact:
        return _artifact(Artifact(artifact_id=artifact.artifact_id, parts=artifact.parts[count:]), append=True)
    return _artifact(artifact)


def _status(task: Task, now: int, metadata: bytes | None = None) -> StatusNote:
    status = task.status
    moment = to_dict(status)["timestamp"] if status.HasField("timestamp") else timestamp(now)
    message = encoded(status.message) if status.HasField("message") else None
    return StatusNote.of(state_of(task), moment, message, metadata=metadata)


def _artifact(
    artifact: Artifact, *, append: bool = False, last: bool = False, metadata: bytes | None = None
) -> ArtifactNote:
    about = to_dict(artifact)
    parts = to_json(about.pop("parts", []))[1:-1]
    members = {"artifactId": about.pop("artifactId", ""), **about}
    return ArtifactNote(artifact.artifact_id, to_json(members)[1:-1], parts, append, last, metadata)


def _changed(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in new.items() if name not in old or old[name] != value}
