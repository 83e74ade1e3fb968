"""A2A 0.3 as the JSON of its protobuf, which the official 0.3 clients use over REST.

The same functions as `v1` and `v03`, with `content` instead of `parts`, enums by name (and CANCELLED with two Ls),
resource names instead of ids, and results wrapped in `task` or `message`. `v03.decode` decodes the requests of both
formats. A message's referenceTaskIds can't be represented and are omitted; all else is carried as described in
`v03_values`.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json, to_json

from keelbolt.protocol import v03
from keelbolt.protocol import v03_values as values
from keelbolt.protocol.lenient import read
from keelbolt.protocol.requests import (
    CreatePushConfigRequest,
    PushConfig,
    PushConfigPage,
    Request,
    SendConfiguration,
    SendMessageRequest,
    StreamEvent,
    TaskPage,
)
from keelbolt.protocol.types import (
    Json,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
    WireModel,
)
from keelbolt.protocol.v03 import decode as decode  # noqa: PLC0414 - one decoder for both formats
from keelbolt.protocol.v03_values import Object, either
from keelbolt.protocol.validation import validate, violation

# ----------------------------------------------------------------------------------------------------------- values


def _part(part: Object) -> Object:
    plain = values.part_down(part)
    kind = plain.pop("kind")
    if kind == "file":
        file = plain["file"]
        if "bytes" in file:
            file["fileWithBytes"] = values.wrapped(file.pop("bytes"))
        if "uri" in file:
            file["fileWithUri"] = file.pop("uri")
    elif kind == "data":
        plain["data"] = {"data": plain["data"]}
    return plain


def _message(message: Object) -> Object:
    found = {name: value for name, value in message.items() if value is not None}
    found.pop("referenceTaskIds", None)
    found["content"] = [_part(part) for part in found.pop("parts")]
    return found


def _artifact(artifact: Object) -> Object:
    found = {name: value for name, value in artifact.items() if value is not None}
    found["parts"] = [_part(part) for part in found["parts"]]
    return found


def _status(status: Object) -> Object:
    found = {name: value for name, value in status.items() if value is not None}
    if found["state"] == TaskState.canceled.value:
        found["state"] = "TASK_STATE_CANCELLED"
    if "message" in found:
        found["message"] = _message(found["message"])
    return found


def _task(task: Object) -> Object:
    found = {name: value for name, value in task.items() if value is not None}
    found["status"] = _status(found["status"])
    if "artifacts" in found:
        found["artifacts"] = [_artifact(artifact) for artifact in found["artifacts"]]
    if "history" in found:
        found["history"] = [_message(message) for message in found["history"]]
    return found


def _status_update(task_id: str, context_id: str, event: Object) -> Object:
    final = event["status"]["state"] in values.FINAL
    found = {**event, "taskId": task_id, "contextId": context_id, "status": _status(event["status"]), "final": final}
    return {"statusUpdate": found}


def _artifact_update(task_id: str, context_id: str, event: Object) -> Object:
    found = {**event, "taskId": task_id, "contextId": context_id, "artifact": _artifact(event["artifact"])}
    return {"artifactUpdate": found}


def _push_config(config: PushConfig) -> Object:
    name = f"tasks/{config.task_id or ''}/pushNotificationConfigs/{config.id or ''}"
    return {"name": name, "pushNotificationConfig": values.push_config_down(_value(config))}


def _value(value: WireModel | bytes) -> Any:
    if isinstance(value, bytes):
        return from_json(value)
    return value.model_dump(mode="json", by_alias=True, exclude_unset=True)


# ------------------------------------------------------------------------------------------------ encoding on a server


def task(value: Task | bytes) -> bytes:
    return to_json(_task(_value(value)))


def sent_task(value: Task | bytes) -> bytes:
    return b'{"task":%b}' % task(value)


def sent_message(value: Message | bytes) -> bytes:
    return to_json({"message": _message(_value(value))})


def status_update(task_id: str, context_id: str, stored: bytes) -> bytes:
    return to_json(_status_update(task_id, context_id, from_json(stored)))


def artifact_update(task_id: str, context_id: str, stored: bytes) -> bytes:
    return to_json(_artifact_update(task_id, context_id, from_json(stored)))


class EventEncoder(v03.EventEncoder):
    """`v03.EventEncoder` for this format."""

    __slots__ = ()

    def status_update(self, stored: bytes) -> bytes:
        return status_update(self._task_id, self._context_id, stored)

    def artifact_update(self, stored: bytes) -> bytes:
        return artifact_update(self._task_id, self._context_id, stored)


def event(value: StreamEvent) -> bytes:
    data = _value(value)
    match value:
        case Task():
            return to_json({"task": _task(data)})
        case Message():
            return to_json({"message": _message(data)})
        case TaskStatusUpdateEvent():
            return to_json(_status_update(value.task_id, value.context_id, data))
        case TaskArtifactUpdateEvent():
            return to_json(_artifact_update(value.task_id, value.context_id, data))


def task_list(page: TaskPage) -> bytes:
    """Encode the result of GET /v1/tasks, which 0.3's protobuf does not define: a plain list."""
    return b"[%b]" % b",".join(map(task, page.tasks))


def push_config(config: PushConfig) -> bytes:
    return to_json(_push_config(config))


def push_config_list(page: PushConfigPage) -> bytes:
    found: Object = {"configs": [_push_config(config) for config in page.configs]}
    if page.next_page_token:
        found["nextPageToken"] = page.next_page_token
    return to_json(found)


def deleted() -> bytes:
    return b"{}"


# ----------------------------------------------------------------------------------- encoding and decoding on a client


def encode_request(request: Request) -> bytes:
    """Encode the REST body of a request; an empty object if path and query hold everything."""
    match request:
        case SendMessageRequest():
            down: Object = {"message": _message(_value(request.message))}
            if request.metadata is not None:
                down["metadata"] = request.metadata
            if request.configuration is not None:
                down["configuration"] = _configuration(request.configuration)
        case CreatePushConfigRequest():
            config_id = request.config.id or ""
            down = {
                "parent": f"tasks/{request.task_id}",
                "configId": config_id,
                "config": _push_config(request.config.model_copy(update={"task_id": request.task_id})),
            }
        case _:
            down = {}
    return to_json(down)


def _configuration(configuration: SendConfiguration) -> Object:
    """Encode the configuration. A history length of 0 can't be sent: in this format it is the same as absent."""
    down: Object = {"blocking": not configuration.return_immediately}
    if configuration.accepted_output_modes:
        down["acceptedOutputModes"] = configuration.accepted_output_modes
    if configuration.history_length:
        down["historyLength"] = configuration.history_length
    if configuration.task_push_notification_config is not None:
        down["pushNotification"] = values.push_config_down(_value(configuration.task_push_notification_config))
    return down


def decode_task(value: Json) -> Task:
    return read(Task, values.task_up(value, proto=True))


def decode_event(value: Json) -> StreamEvent:
    """Decode an event of a stream, or the result of POST /v1/message:send. Raise InvalidParamsError."""
    if isinstance(value, dict):
        if (task := value.get("task")) is not None:
            return decode_task(task)
        if (message := either(value, "message", "msg")) is not None:
            return read(Message, values.message_up(message))
        if isinstance(update := either(value, "statusUpdate", "status_update"), dict):
            return read(TaskStatusUpdateEvent, {**update, "status": values.status_up(update.get("status"))})
        if isinstance(update := either(value, "artifactUpdate", "artifact_update"), dict):
            artifact = values.artifact_up(update.get("artifact"), proto=True)
            return read(TaskArtifactUpdateEvent, {**update, "artifact": artifact})
    raise violation("", "one of task, message, statusUpdate and artifactUpdate is required")


def decode_push_config(value: Json) -> PushConfig:
    if not isinstance(value, dict):
        raise violation("", "Input should be an object")
    config = values.push_config_up(either(value, "pushNotificationConfig", "push_notification_config"))
    name = str(value.get("name") or "").split("/")
    return validate(PushConfig, {**config, "taskId": name[1]} if isinstance(config, dict) and len(name) > 1 else config)


def decode_push_config_list(value: Json) -> PushConfigPage:
    if not isinstance(value, dict) or not isinstance(configs := value.get("configs", []), list):
        raise violation("configs", "Input should be an array")
    return PushConfigPage([decode_push_config(config) for config in configs], value.get("nextPageToken") or "")


def decode_task_list(value: Json) -> TaskPage:
    if not isinstance(value, list):
        raise violation("", "Input should be an array")
    return TaskPage([decode_task(item) for item in value], "", len(value), len(value))
