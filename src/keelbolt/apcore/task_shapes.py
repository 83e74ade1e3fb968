"""Converts a task to the dictionary that a `TaskStore` stores, and back. Pure and lossless."""

from __future__ import annotations

from typing import Any

from keelbolt.protocol.types import Artifact, Message, Role, Task, TaskState, TaskStatus, WireModel

Object = dict[str, Any]

_FILE = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
_OTHER = {"filename": "name"}


def task_object(task: Task, version: int, before: list[Object]) -> Object:
    """Return the dictionary of a task; ``before`` are its previous statuses.

    {"id": "…", "contextId": "…",
     "status": {"state": "input_required", "message": "text or None", "timestamp": "…",
                "version": 7, "said": {the whole message of the agent}},
     "artifacts": [{"artifactId": "…", "index": 0, "parts": [{"type": "data", "data": {…}, "mediaType": "…"}]}],
     "history": [the statuses before],
     "messages": [{"messageId": "…", "role": "user", "parts": […]}],
     "metadata": {…}}
    """
    found: Object = {
        "id": task.id,
        "contextId": task.context_id,
        "status": status_object(task.status, version),
        "artifacts": [artifact_object(artifact, index) for index, artifact in enumerate(task.artifacts)],
        "history": before,
        "messages": [message_object(message) for message in task.history],
    }
    if task.metadata is not None:
        found["metadata"] = task.metadata
    return found


def task_of(found: Object) -> Task:
    """Return the task of a dictionary."""
    return Task(
        id=found["id"],
        context_id=found["contextId"],
        status=status_of(found["status"]),
        artifacts=[_artifact(artifact) for artifact in found.get("artifacts") or ()],
        history=[_message(message) for message in found.get("messages") or ()],
        **({"metadata": found["metadata"]} if found.get("metadata") is not None else {}),
    )


def status_object(status: TaskStatus, version: int) -> Object:
    message = status.message
    found: Object = {"state": status.state.name, "message": message.text if message is not None else None}
    found |= {"timestamp": status.timestamp, "version": version}
    if message is not None:
        found["said"] = message_object(message)
    return found


def status_of(found: Object) -> TaskStatus:
    given: Object = {"state": TaskState(found["state"]), "timestamp": found.get("timestamp")}
    if found.get("said") is not None:
        given["message"] = _message(found["said"])
    return TaskStatus(**given)


def version_of(found: Object) -> int:
    """Return the version of a stored task; 1 if another program stored it without a version."""
    version = found["status"].get("version")
    return version if isinstance(version, int) else 1


def artifact_object(artifact: Artifact, index: int) -> Object:
    found = _dumped(artifact)
    return {**found, "index": index, "parts": [_part_object(part) for part in found["parts"]]}


def message_object(message: Message) -> Object:
    found = _dumped(message)
    return {**found, "role": message.role.name, "parts": [_part_object(part) for part in found["parts"]]}


def _dumped(model: WireModel) -> Object:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _artifact(found: Object) -> Artifact:
    index = found.get("index", 0)
    parts = [_part(part) for part in found["parts"]]
    return Artifact.model_validate({"artifactId": f"artifact-{index}", **found, "parts": parts})


def _message(found: Object) -> Message:
    parts = [_part(part) for part in found["parts"]]
    return Message.model_validate({**found, "role": Role(found["role"]), "parts": parts})


def _part_object(part: Object) -> Object:
    if "text" in part or "data" in part:
        return {"type": "text" if "text" in part else "data"} | _renamed(part, _OTHER)
    return {"type": "file"} | _renamed(part, _FILE)


def _part(found: Object) -> Object:
    names = _FILE if found.get("type") == "file" else _OTHER
    part = _renamed(found, {outside: inside for inside, outside in names.items()})
    part.pop("type", None)
    return part


def _renamed(part: Object, names: dict[str, str]) -> Object:
    return {names.get(name, name): value for name, value in part.items()}
