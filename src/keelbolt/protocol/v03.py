"""A2A 0.3 as JSON: the same functions as `v1`, in the format of 0.3.

It decodes plain 0.3 JSON and the JSON of 0.3's protobuf (which the official 0.3 clients send over REST: `content`,
ROLE_USER, snake_case, resource names such as tasks/t1/pushNotificationConfigs/c1). It encodes plain 0.3 JSON, with
`kind` everywhere; `v03_proto` encodes the other format. `v03_values` describes how data that only one version can
represent is carried.

Three rules of 0.3 that differ in meaning:

- `blocking`: with false, the server responds at once; with true or without it, the server waits. In a protobuf body, a
  configuration without it means false, since protobuf does not send false.
- `historyLength` 0 is no history; in a protobuf body it is the same as absent.
- A push config may be requested without its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import from_json, to_json

from keelbolt.errors import FieldViolation, InvalidParamsError
from keelbolt.protocol import v03_values as values
from keelbolt.protocol.lenient import read
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import (
    CancelTaskRequest,
    CreatePushConfigRequest,
    DeletePushConfigRequest,
    GetPushConfigRequest,
    ListPushConfigsRequest,
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
    TaskStatusUpdateEvent,
    WireModel,
)
from keelbolt.protocol.v03_values import Object, either
from keelbolt.protocol.v1 import MODELS
from keelbolt.protocol.validation import DEFAULT, Limits, checked, validate, violation

# ------------------------------------------------------------------------------------------------ decoding on a server


def decode(operation: Operation, params: Mapping[str, Json], *, limits: Limits = DEFAULT) -> Request:
    """Return the request of these parameters. Raise InvalidParamsError or RequestTooLargeError."""
    given = up = dict(params)
    match operation:
        case Operation.send_message | Operation.send_streaming_message:
            up = _send_up(given)
        case Operation.get_task | Operation.cancel_task | Operation.subscribe_to_task:
            up = {**given, "id": _task_id(given, "id")}
        case Operation.create_push_config:
            up = _create_up(given)
        case Operation.get_push_config | Operation.list_push_configs | Operation.delete_push_config:
            up = {**given, "taskId": _task_id(given, "id"), "id": _config_id(given)}
        case Operation.list_tasks | Operation.get_extended_card:
            pass
    try:
        request = checked(validate(MODELS[operation], up), limits)
    except InvalidParamsError as error:
        raise InvalidParamsError(violations=_renamed(operation, error.violations)) from None
    if isinstance(request, DeletePushConfigRequest) and request.id is None:
        raise violation("pushNotificationConfigId", "is required")
    return request


_CONFIG_OPERATIONS = {Operation.get_push_config, Operation.list_push_configs, Operation.delete_push_config}


def _renamed(operation: Operation, violations: Iterable[FieldViolation]) -> list[FieldViolation]:
    """Return the violations with the field names of 0.3."""
    found = []
    for field, description in violations:
        name = field.replace("configuration.taskPushNotificationConfig", "configuration.pushNotificationConfig")
        if operation is Operation.create_push_config and field.startswith("config"):
            name = field.replace("config", "pushNotificationConfig", 1)
        elif operation in _CONFIG_OPERATIONS:
            name = {"taskId": "id", "id": "pushNotificationConfigId"}.get(field, field)
        found.append(FieldViolation(name, description))
    return found


def _send_up(params: Object) -> Object:
    message = either(params, "message", "request")
    proto = isinstance(message, dict) and "content" in message
    up: Object = {"tenant": params.get("tenant"), "metadata": params.get("metadata")}
    if message is not None:
        up["message"] = values.message_up(message)
    if (configuration := params.get("configuration")) is not None:
        up["configuration"] = _configuration_up(configuration, proto=proto)
    return up


def _configuration_up(given: Json, *, proto: bool) -> Json:
    if not isinstance(given, dict):
        return given
    blocking = given.get("blocking")
    if blocking is None:
        blocking = not proto
    elif not isinstance(blocking, bool):
        raise violation("configuration.blocking", "Input should be true or false")
    up: Object = {
        "acceptedOutputModes": either(given, "acceptedOutputModes", "accepted_output_modes"),
        "historyLength": either(given, "historyLength", "history_length"),
        "returnImmediately": not blocking,
    }
    if proto and up["historyLength"] == 0:
        up["historyLength"] = None
    names = ("pushNotificationConfig", "push_notification_config", "pushNotification", "push_notification")
    if (config := either(given, *names)) is not None:
        up["taskPushNotificationConfig"] = values.push_config_up(config)
    return up


def _create_up(params: Object) -> Object:
    outer = params["config"] if isinstance(params.get("config"), dict) else params
    config = values.push_config_up(either(outer, "pushNotificationConfig", "push_notification_config"))
    if config is None:
        raise violation("pushNotificationConfig", "is required")
    task_id = either(params, "taskId", "task_id") or _task_id({**outer, **params}, "taskId")
    config_id = either(params, "configId", "config_id")
    if isinstance(config, dict):
        config = {**config, "taskId": task_id}
        if config_id is not None and not config.get("id"):
            config["id"] = config_id
    return {"tenant": params.get("tenant"), "taskId": task_id, "config": config}


def _task_id(params: Object, name: str) -> Json:
    """Return the id, or the one in a resource name: tasks/{id}, tasks/{id}/pushNotificationConfigs/{id}."""
    if (given := params.get(name)) is not None:
        return given
    resource = either(params, "name", "parent")
    if not isinstance(resource, str):
        raise violation(name, "is required")
    collection, _, rest = resource.partition("/")
    if collection != "tasks":
        raise violation("name", "a task's name must begin with tasks/")
    return rest.partition("/")[0]


def _config_id(params: Object) -> Json:
    if (given := either(params, "pushNotificationConfigId", "push_notification_config_id")) is not None:
        return given
    resource = params.get("name")
    if isinstance(resource, str) and "id" not in params:
        return resource.partition("/pushNotificationConfigs/")[2] or None
    return None


# ------------------------------------------------------------------------------------------------ encoding on a server


def task(value: Task | bytes) -> bytes:
    """Encode the result of tasks/get and tasks/cancel."""
    return to_json(values.task_down(_value(value)))


def sent_task(value: Task | bytes) -> bytes:
    """Encode the result of message/send if it is a task; also the first event of a stream."""
    return task(value)


def sent_message(value: Message | bytes) -> bytes:
    """Encode the result of message/send if it is a message; also the only event of such a stream."""
    return to_json(values.message_down(_value(value)))


def status_update(task_id: str, context_id: str, stored: bytes) -> bytes:
    """Encode a stored status as an event of a stream; `final` if the task is terminal or waits for its user."""
    return to_json(values.status_update_down(task_id, context_id, from_json(stored)))


def artifact_update(task_id: str, context_id: str, stored: bytes) -> bytes:
    """Encode a stored artifact chunk as an event of a stream."""
    return to_json(values.artifact_update_down(task_id, context_id, from_json(stored)))


class EventEncoder:
    """`status_update` and `artifact_update` for many events of one task."""

    __slots__ = ("_context_id", "_task_id")

    def __init__(self, task_id: str, context_id: str) -> None:
        self._task_id = task_id
        self._context_id = context_id

    def status_update(self, stored: bytes) -> bytes:
        return status_update(self._task_id, self._context_id, stored)

    def artifact_update(self, stored: bytes) -> bytes:
        return artifact_update(self._task_id, self._context_id, stored)


def event(value: StreamEvent) -> bytes:
    """Encode an event model."""
    data = _value(value)
    match value:
        case Task():
            return to_json(values.task_down(data))
        case Message():
            return to_json(values.message_down(data))
        case TaskStatusUpdateEvent():
            return to_json(values.status_update_down(value.task_id, value.context_id, data))
        case TaskArtifactUpdateEvent():
            return to_json(values.artifact_update_down(value.task_id, value.context_id, data))


def task_list(page: TaskPage) -> bytes:
    """Encode the result of GET /v1/tasks: a plain list, since 0.3 has no pages."""
    return b"[%b]" % b",".join(map(task, page.tasks))


def push_config(config: PushConfig) -> bytes:
    """Encode the result of setting or getting a push config."""
    return to_json(_push_config(config))


def _push_config(config: PushConfig) -> Object:
    return {"taskId": config.task_id or "", "pushNotificationConfig": values.push_config_down(_value(config))}


def push_config_list(page: PushConfigPage) -> bytes:
    """Encode the result of tasks/pushNotificationConfig/list."""
    return to_json([_push_config(config) for config in page.configs])


def deleted() -> bytes:
    """Encode the result of tasks/pushNotificationConfig/delete."""
    return b"null"


def _value(value: WireModel | bytes) -> Any:
    if isinstance(value, bytes):
        return from_json(value)
    return value.model_dump(mode="json", by_alias=True, exclude_unset=True)


# ----------------------------------------------------------------------------------- encoding and decoding on a client


def encode_request(request: Request) -> bytes:
    """Encode the parameters of a request, without data that 0.3 can't represent (tenants, for example)."""
    data = _value(request)
    match request:
        case SendMessageRequest():
            down: Object = {"message": values.message_down(data["message"])}
            if request.metadata is not None:
                down["metadata"] = request.metadata
            if request.configuration is not None:
                down["configuration"] = _configuration_down(request.configuration)
        case CreatePushConfigRequest():
            down = {"taskId": request.task_id, "pushNotificationConfig": values.push_config_down(data["config"])}
        case GetPushConfigRequest() | DeletePushConfigRequest():
            down = {"id": request.task_id}
            if request.id is not None:
                down["pushNotificationConfigId"] = request.id
        case ListPushConfigsRequest():
            down = {"id": request.task_id}
        case CancelTaskRequest() if request.metadata is None:
            down = {"id": request.id}
        case _:
            down = {name: value for name, value in data.items() if name != "tenant" and value is not None}
    return to_json(down)


def _configuration_down(configuration: SendConfiguration) -> Object:
    down: Object = {"blocking": not configuration.return_immediately}
    if configuration.accepted_output_modes:
        down["acceptedOutputModes"] = configuration.accepted_output_modes
    if configuration.history_length is not None:
        down["historyLength"] = configuration.history_length
    if configuration.task_push_notification_config is not None:
        config = _value(configuration.task_push_notification_config)
        down["pushNotificationConfig"] = values.push_config_down(config)
    return down


def decode_task(value: Json) -> Task:
    return read(Task, values.task_up(value))


def decode_event(value: Json) -> StreamEvent:
    """Decode an event of a stream, or the result of message/send. Raise InvalidParamsError."""
    match _kind(value):
        case "task":
            return read(Task, values.task_up(value))
        case "message":
            return read(Message, values.message_up(value))
        case "status-update":
            return read(TaskStatusUpdateEvent, {**value, "status": values.status_up(value.get("status"))})
        case "artifact-update":
            return read(TaskArtifactUpdateEvent, {**value, "artifact": values.artifact_up(value.get("artifact"))})
        case _:
            raise violation("kind", "one of task, message, status-update and artifact-update is required")


def _kind(value: Json) -> Json:
    """Return the `kind` of a response, or the one that its members imply."""
    if not isinstance(value, dict):
        return None
    if value.get("kind") is not None:
        return value["kind"]
    if "artifact" in value:
        return "artifact-update"
    if "status" in value:
        return "task" if "id" in value else "status-update"
    return "message" if "parts" in value and "role" in value else None


def decode_push_config(value: Json) -> PushConfig:
    if not isinstance(value, dict):
        raise violation("", "Input should be an object")
    config = values.push_config_up(value.get("pushNotificationConfig"))
    return validate(PushConfig, {**config, "taskId": value.get("taskId")} if isinstance(config, dict) else config)


def decode_push_config_list(value: Json) -> PushConfigPage:
    if not isinstance(value, list):
        raise violation("", "Input should be an array")
    return PushConfigPage([decode_push_config(config) for config in value])


def decode_task_list(value: Json) -> TaskPage:
    if not isinstance(value, list):
        raise violation("", "Input should be an array")
    return TaskPage([decode_task(item) for item in value], "", len(value), len(value))
