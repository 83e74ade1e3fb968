"""Decodes responses of agents that omit empty fields, as proto3 JSON does, or fields that 1.0 requires.

A client first decodes a response as it is. Only if that fails, it adds the missing members and decodes again:

    parts, artifacts, history      []
    contextId, taskId              "" (the caller knows which task it requested)
    role                           ROLE_AGENT
    the state of a status          TASK_STATE_SUBMITTED; also for 0.3's `unknown` and for TASK_STATE_UNSPECIFIED
    messageId, artifactId          "-"
    a part without content         left out

Servers decode requests strictly: see `validation.validate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from keelbolt.errors import InvalidParamsError
from keelbolt.protocol.types import (
    Artifact,
    Json,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
    WireModel,
)
from keelbolt.protocol.validation import validate

T = TypeVar("T", bound=WireModel)
Object = dict[str, Any]

NO_ID = "-"
_CONTENT = ("text", "raw", "url", "data")
_NO_STATE = frozenset({"unknown", "TASK_STATE_UNKNOWN", "TASK_STATE_UNSPECIFIED", "", 0, None})


def read(model: type[T], value: Json) -> T:
    """Return the model of an agent's JSON value. Raise InvalidParamsError if it is invalid, not only incomplete."""
    try:
        return validate(model, value)
    except InvalidParamsError:
        fill = _FILL.get(model)
        if fill is None or not isinstance(value, dict):
            raise
        return validate(model, fill(value))


def _task(task: Object) -> Object:
    up = _with(task, contextId="", status=_status(task.get("status")))
    up["artifacts"] = _each(task.get("artifacts"), _artifact)
    up["history"] = _each(task.get("history"), _message)
    return up


def _status_update(event: Object) -> Object:
    return _with(event, taskId="", contextId="", status=_status(event.get("status")))


def _artifact_update(event: Object) -> Object:
    artifact = event.get("artifact")
    return _with(event, taskId="", contextId="", artifact=_artifact(artifact if isinstance(artifact, dict) else {}))


def _artifact(artifact: Object) -> Object:
    return _with(artifact, artifactId=NO_ID, parts=_parts(artifact.get("parts")))


def _message(message: Object) -> Object:
    up = _with(message, messageId=NO_ID, role="ROLE_AGENT", parts=_parts(message.get("parts")))
    if up["role"] in ("ROLE_UNSPECIFIED", 0):
        up["role"] = "ROLE_AGENT"
    return up


def _status(status: Json) -> Json:
    if not isinstance(status, dict):
        return status
    up = dict(status)
    state = up.get("state")
    if isinstance(state, str | int | None) and state in _NO_STATE:
        up["state"] = TaskState.submitted.value
    if isinstance(message := up.get("message"), dict):
        up["message"] = _message(message)
    return up


def _parts(parts: Json) -> Json:
    if not isinstance(parts, list):
        return [] if parts is None else parts
    return [part for part in parts if not isinstance(part, dict) or any(name in part for name in _CONTENT)]


def _each(values: Json, fill: Callable[[Object], Object]) -> Json:
    if not isinstance(values, list):
        return [] if values is None else values
    return [fill(value) if isinstance(value, dict) else value for value in values]


def _with(value: Object, **members: Json) -> Object:
    """Return a copy with missing text members added; other members are replaced by the given value."""
    up = dict(value)
    for name, given in members.items():
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
        if isinstance(given, str):
            if not up.get(name) and not up.get(snake):
                up[name] = given
        else:
            up[name] = given
    return up


_FILL: dict[type[WireModel], Callable[[Object], Object]] = {
    Task: _task,
    Message: _message,
    Artifact: _artifact,
    TaskStatusUpdateEvent: _status_update,
    TaskArtifactUpdateEvent: _artifact_update,
}
