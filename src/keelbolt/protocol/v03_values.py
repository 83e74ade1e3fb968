"""Converts parts, messages, statuses, tasks and events between 0.3 and 1.0: JSON values in, JSON values out.

    _down: 1.0 to 0.3      _up: 0.3 to 1.0      up(down(x)) == x for all data of 1.0

Data that only 1.0 can represent is carried in a part's metadata, under keys that `_up` removes:

    data_part_compat    data that is no object is sent as {"value": data}; the official SDK does the same
    filename_compat     the filename of a part that is not a file (the official SDK loses it)
    media_type_compat   its media type (the same)

Data that only 0.3 can represent is dropped: `kind` and `final` follow from the rest, and of several authentication
schemes of a push config only the first is kept.

`_up` also reads the JSON of 0.3's protobuf, which the official 0.3 clients send over REST: `content` instead of
`parts`, ROLE_USER, snake_case, files as fileWithUri or fileWithBytes. It never raises: invalid data is passed on to
validation, which names the field.
"""

from __future__ import annotations

import base64
from typing import Any

from keelbolt.protocol.types import PAUSED, TERMINAL, Json, Role, TaskState

Object = dict[str, Any]

DATA_MARK = "data_part_compat"
FILENAME_MARK = "filename_compat"
MEDIA_TYPE_MARK = "media_type_compat"

STATES: dict[str, str] = {state.value: state.name.replace("_", "-") for state in TaskState}
ROLES: dict[str, str] = {role.value: role.name for role in Role}
FINAL = frozenset(state.value for state in TERMINAL | PAUSED)
"""States at which a status update of 0.3 is `final`: no event follows for now."""

# --------------------------------------------------------------------------------------------------------------- down


def part_down(part: Object) -> Object:
    metadata = part.get("metadata")
    if (text := part.get("text")) is not None:
        down: Object = {"kind": "text", "text": text}
    elif (raw := part.get("raw")) is not None:
        return _file_down("bytes", raw, part)
    elif (url := part.get("url")) is not None:
        return _file_down("uri", url, part)
    else:
        data = part.get("data")
        if not isinstance(data, dict):
            data = {"value": data}
            metadata = {**(metadata or {}), DATA_MARK: True}
        down = {"kind": "data", "data": data}
    if (filename := part.get("filename")) is not None:
        metadata = {**(metadata or {}), FILENAME_MARK: filename}
    if (media_type := part.get("mediaType")) is not None:
        metadata = {**(metadata or {}), MEDIA_TYPE_MARK: media_type}
    if metadata is not None:
        down["metadata"] = metadata
    return down


def _file_down(member: str, content: str, part: Object) -> Object:
    file = {member: content}
    if (filename := part.get("filename")) is not None:
        file["name"] = filename
    if (media_type := part.get("mediaType")) is not None:
        file["mimeType"] = media_type
    down: Object = {"kind": "file", "file": file}
    if (metadata := part.get("metadata")) is not None:
        down["metadata"] = metadata
    return down


def message_down(message: Object) -> Object:
    return {
        "kind": "message",
        "messageId": message["messageId"],
        "role": ROLES[message["role"]],
        "parts": [part_down(part) for part in message["parts"]],
        **_given(message, ("contextId", "taskId", "referenceTaskIds", "extensions", "metadata")),
    }


def artifact_down(artifact: Object) -> Object:
    return {
        "artifactId": artifact["artifactId"],
        "parts": [part_down(part) for part in artifact["parts"]],
        **_given(artifact, ("name", "description", "metadata", "extensions")),
    }


def status_down(status: Object) -> Object:
    down: Object = {"state": STATES[status["state"]], **_given(status, ("timestamp",))}
    if (message := status.get("message")) is not None:
        down["message"] = message_down(message)
    return down


def task_down(task: Object) -> Object:
    down: Object = {
        "kind": "task",
        "id": task["id"],
        "contextId": task["contextId"],
        "status": status_down(task["status"]),
        **_given(task, ("metadata",)),
    }
    if (artifacts := task.get("artifacts")) is not None:
        down["artifacts"] = [artifact_down(artifact) for artifact in artifacts]
    if (history := task.get("history")) is not None:
        down["history"] = [message_down(message) for message in history]
    return down


def status_update_down(task_id: str, context_id: str, event: Object) -> Object:
    """Convert a status update; the event may be a stored one, without the ids."""
    status = event["status"]
    return {
        "kind": "status-update",
        "taskId": task_id,
        "contextId": context_id,
        "status": status_down(status),
        "final": status["state"] in FINAL,
        **_given(event, ("metadata",)),
    }


def artifact_update_down(task_id: str, context_id: str, event: Object) -> Object:
    """Convert an artifact update; the event may be a stored one, without the ids."""
    return {
        "kind": "artifact-update",
        "taskId": task_id,
        "contextId": context_id,
        "artifact": artifact_down(event["artifact"]),
        **_given(event, ("append", "lastChunk", "metadata")),
    }


def push_config_down(config: Object) -> Object:
    """Convert a flat config of 1.0 to 0.3's PushNotificationConfig, which does not include the task id."""
    down = _given(config, ("id", "url", "token"))
    if (authentication := config.get("authentication")) is not None:
        down["authentication"] = {"schemes": [authentication["scheme"]], **_given(authentication, ("credentials",))}
    return down


def _given(value: Object, names: tuple[str, ...]) -> Object:
    return {name: value[name] for name in names if value.get(name) is not None}


# ----------------------------------------------------------------------------------------------------------------- up


def either(value: Object, *names: str) -> Json:
    """Return the first of these members that is present and not null."""
    for name in names:
        if (found := value.get(name)) is not None:
            return found
    return None


def part_up(part: Json, *, proto: bool = False) -> Json:
    if not isinstance(part, dict):
        return part
    kind = part.get("kind")
    if kind is None:  # required, but the official models accept its absence
        kind = next((name for name in ("text", "file", "data") if part.get(name) is not None), None)
    metadata = part.get("metadata")
    up: Object = {}
    if kind == "text":
        up["text"] = part.get("text")
    elif kind == "file":
        up = _file_up(part.get("file"))
    elif kind == "data":
        data = part.get("data")
        if proto and isinstance(data, dict):
            data = data.get("data")
        if isinstance(data, dict):
            if isinstance(metadata, dict) and metadata.get(DATA_MARK) is True and data.keys() == {"value"}:
                data = data["value"]
                metadata = _without(metadata, DATA_MARK)
            up["data"] = data
    if kind != "file" and isinstance(metadata, dict):
        for mark, name in ((FILENAME_MARK, "filename"), (MEDIA_TYPE_MARK, "mediaType")):
            if isinstance(metadata, dict) and isinstance(metadata.get(mark), str):
                up[name] = metadata[mark]
                metadata = _without(metadata, mark)
    if metadata is not None:
        up["metadata"] = metadata
    return up


def _without(metadata: Object, mark: str) -> Object | None:
    return {name: value for name, value in metadata.items() if name != mark} or None


def _file_up(file: Json) -> Object:
    if not isinstance(file, dict):
        return {}
    up: Object = {}
    if (content := file.get("bytes")) is not None:
        up["raw"] = content
    elif (content := either(file, "fileWithBytes", "file_with_bytes")) is not None:
        up["raw"] = _unwrapped(content)
    if (url := either(file, "uri", "fileWithUri", "file_with_uri")) is not None:
        up["url"] = url
    if (name := file.get("name")) is not None:
        up["filename"] = name
    if (media_type := either(file, "mimeType", "mime_type")) is not None:
        up["mediaType"] = media_type
    return up


def wrapped(content: str) -> str:
    """Encode base64 like the official SDK in 0.3's protobuf, which puts the base64 text into the bytes field."""
    return base64.b64encode(content.encode()).decode()


def _unwrapped(content: Json) -> Json:
    """Return the base64 text within a bytes field; content that was stored as bytes is returned unchanged."""
    if not isinstance(content, str):
        return content
    try:
        inner = base64.b64decode(content, validate=True).decode("ascii")
        return inner if base64.b64encode(base64.b64decode(inner, validate=True)).decode() == inner else content
    except ValueError:
        return content


def parts_up(parts: Json, *, proto: bool = False) -> Json:
    return [part_up(part, proto=proto) for part in parts] if isinstance(parts, list) else parts


def message_up(message: Json) -> Json:
    if not isinstance(message, dict):
        return message
    up = {name: value for name, value in message.items() if name not in {"kind", "content"}}
    if message.get("parts") is None and "content" in message:
        up["parts"] = parts_up(message["content"], proto=True)
    elif "parts" in message:
        up["parts"] = parts_up(message["parts"])
    return up


def artifact_up(artifact: Json, *, proto: bool = False) -> Json:
    if not isinstance(artifact, dict):
        return artifact
    return {**artifact, "parts": parts_up(artifact.get("parts"), proto=proto)}


def status_up(status: Json) -> Json:
    if not isinstance(status, dict):
        return status
    up = {"state": status.get("state"), **_given(status, ("timestamp",))}
    if (message := either(status, "message", "update")) is not None:
        up["message"] = message_up(message)
    return up


def task_up(task: Json, *, proto: bool = False) -> Json:
    if not isinstance(task, dict):
        return task
    up = {**task, "status": status_up(task.get("status"))}
    if isinstance(artifacts := task.get("artifacts"), list):
        up["artifacts"] = [artifact_up(artifact, proto=proto) for artifact in artifacts]
    if isinstance(history := task.get("history"), list):
        up["history"] = [message_up(message) for message in history]
    return up


def push_config_up(config: Json) -> Json:
    """Convert 0.3's PushNotificationConfig to the flat config of 1.0, without the task id."""
    if not isinstance(config, dict):
        return config
    authentication = config.get("authentication")
    if isinstance(authentication, dict) and "scheme" not in authentication:
        schemes = authentication.get("schemes")
        if isinstance(schemes, list) and schemes:
            authentication = {**authentication, "scheme": schemes[0]}
        elif not schemes and not authentication.get("credentials"):
            authentication = None
    return {**config, "authentication": authentication}
