"""Converts a save of the SDK into notes of the task's log."""

from __future__ import annotations

from typing import Any

from a2a.types.a2a_pb2 import Artifact, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from pydantic_core import to_json

from keelbolt.a2a_sdk.codec import Event, encoded, state_of, to_dict
from keelbolt.protocol.types import timestamp
from keelbolt.tasks.notes import ArtifactNote, MessageNote, Note, OtherNote, StatusNote
from keelbolt.tasks.view import TaskView


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
        notes.append(_artifact(event.artifact, append=append, last=event.last_chunk))
    changed = _changed(to_dict(task.metadata), view.metadata)
    if changed:
        notes.append(OtherNote("metadata", changed))
    if isinstance(event, TaskStatusUpdateEvent) or state_of(task) is not view.state:
        notes.append(_status(task, now))
    return notes or [OtherNote("touch", {})]


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
    if len(artifact.parts) > count and list(artifact.parts[:count]) == list(old.parts):
        return _artifact(Artifact(artifact_id=artifact.artifact_id, parts=artifact.parts[count:]), append=True)
    return _artifact(artifact)


def _status(task: Task, now: int) -> StatusNote:
    status = task.status
    moment = to_dict(status)["timestamp"] if status.HasField("timestamp") else timestamp(now)
    message = encoded(status.message) if status.HasField("message") else None
    return StatusNote.of(state_of(task), moment, message)


def _artifact(artifact: Artifact, *, append: bool = False, last: bool = False) -> ArtifactNote:
    about = to_dict(artifact)
    parts = to_json(about.pop("parts", []))[1:-1]
    members = {"artifactId": about.pop("artifactId", ""), **about}
    return ArtifactNote(artifact.artifact_id, to_json(members)[1:-1], parts, append, last)


def _changed(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in new.items() if name not in old or old[name] != value}
