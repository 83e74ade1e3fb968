"""A2A 1.0 as JSON: decodes requests of clients, and encodes results of the agent.

Decoding follows ProtoJSON: camelCase and snake_case, enums by name (or number), null is the same as absent, unknown
fields are ignored, a number may be quoted. The same functions decode query parameters of the REST binding.

Encoding is mostly concatenation. A task's log holds its events as 1.0 JSON without the two ids, which they all share;
`status_update` and `artifact_update` prepend the ids and decode nothing:

    status_update("t", "c", b'{"status":{…}}') == b'{"statusUpdate":{"taskId":"t","contextId":"c","status":{…}}}'
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, TypeVar

from pydantic import Field
from pydantic_core import to_json

from keelbolt.protocol.lenient import read
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import (
    CancelTaskRequest,
    CreatePushConfigRequest,
    DeletePushConfigRequest,
    GetExtendedCardRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    ListTasksRequest,
    PushConfig,
    PushConfigPage,
    Request,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    TaskPage,
)
from keelbolt.protocol.types import (
    Json,
    Message,
    OrNull,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
    WireModel,
    encode,
)
from keelbolt.protocol.validation import DEFAULT, Limits, checked, validate, violation

MODELS: Mapping[Operation, type[Request]] = MappingProxyType(
    {
        Operation.send_message: SendMessageRequest,
        Operation.send_streaming_message: SendMessageRequest,
        Operation.get_task: GetTaskRequest,
        Operation.list_tasks: ListTasksRequest,
        Operation.cancel_task: CancelTaskRequest,
        Operation.subscribe_to_task: SubscribeToTaskRequest,
        Operation.create_push_config: CreatePushConfigRequest,
        Operation.get_push_config: GetPushConfigRequest,
        Operation.list_push_configs: ListPushConfigsRequest,
        Operation.delete_push_config: DeletePushConfigRequest,
        Operation.get_extended_card: GetExtendedCardRequest,
    }
)
"""The request model of each operation."""

# ------------------------------------------------------------------------------------------------ decoding on a server


def decode(operation: Operation, params: Mapping[str, Json], *, limits: Limits = DEFAULT) -> Request:
    """Return the request of these parameters. Raise InvalidParamsError or RequestTooLargeError."""
    if operation is Operation.create_push_config:
        return checked(_create_push_config(params), limits)
    request = checked(validate(MODELS[operation], params), limits)
    if isinstance(request, GetPushConfigRequest | DeletePushConfigRequest) and request.id is None:
        raise violation("id", "is required")
    return request


def _create_push_config(params: Mapping[str, Json]) -> CreatePushConfigRequest:
    """Decode the request; in 1.0 it is the config itself."""
    config = validate(PushConfig, params)
    if config.task_id is None:
        raise violation("taskId", "is required")
    return CreatePushConfigRequest(tenant=config.tenant, task_id=config.task_id, config=config)


# ------------------------------------------------------------------------------------------------ encoding on a server


def task(value: Task | bytes) -> bytes:
    """Encode the result of GetTask and CancelTask."""
    return _json(value)


def sent_task(value: Task | bytes) -> bytes:
    """Encode the result of SendMessage if it is a task; also the first event of a stream."""
    return b'{"task":%b}' % _json(value)


def sent_message(value: Message | bytes) -> bytes:
    """Encode the result of SendMessage if it is a message; also the only event of such a stream."""
    return b'{"message":%b}' % _json(value)


def status_update(task_id: str, context_id: str, stored: bytes) -> bytes:
    """Encode a stored status as an event of a stream."""
    return EventEncoder(task_id, context_id).status_update(stored)


def artifact_update(task_id: str, context_id: str, stored: bytes) -> bytes:
    """Encode a stored artifact chunk as an event of a stream."""
    return EventEncoder(task_id, context_id).artifact_update(stored)


class EventEncoder:
    """`status_update` and `artifact_update` for many events of one task; encodes the ids once."""

    __slots__ = ("_ids",)

    def __init__(self, task_id: str, context_id: str) -> None:
        self._ids = b'{"taskId":%b,"contextId":%b,' % (to_json(task_id), to_json(context_id))

    def status_update(self, stored: bytes) -> bytes:
        return b'{"statusUpdate":%b%b}' % (self._ids, stored[1:])

    def artifact_update(self, stored: bytes) -> bytes:
        return b'{"artifactUpdate":%b%b}' % (self._ids, stored[1:])


def event(value: StreamEvent) -> bytes:
    """Encode an event model."""
    return b'{"%b":%b}' % (_WRAPPERS[type(value)], encode(value))


_WRAPPERS: dict[type[WireModel], bytes] = {
    Task: b"task",
    Message: b"message",
    TaskStatusUpdateEvent: b"statusUpdate",
    TaskArtifactUpdateEvent: b"artifactUpdate",
}


def task_list(page: TaskPage) -> bytes:
    """Encode the result of ListTasks, always with all four members."""
    return b'{"tasks":[%b],"nextPageToken":%b,"pageSize":%d,"totalSize":%d}' % (
        b",".join(map(_json, page.tasks)),
        to_json(page.next_page_token),
        page.page_size,
        page.total_size,
    )


def push_config(config: PushConfig) -> bytes:
    """Encode the result of creating or getting a push config."""
    return to_json(config.model_dump(mode="json", by_alias=True, exclude_none=True))


def push_config_list(page: PushConfigPage) -> bytes:
    """Encode the result of ListTaskPushNotificationConfigs."""
    token = b',"nextPageToken":%b' % to_json(page.next_page_token) if page.next_page_token else b""
    return b'{"configs":[%b]%b}' % (b",".join(map(push_config, page.configs)), token)


def deleted() -> bytes:
    """Encode the result of DeleteTaskPushNotificationConfig: google.protobuf.Empty."""
    return b"{}"


def _json(value: WireModel | bytes) -> bytes:
    return value if isinstance(value, bytes) else encode(value)


# ----------------------------------------------------------------------------------- encoding and decoding on a client

M = TypeVar("M", bound=WireModel)


def encode_request(request: Request) -> bytes:
    """Encode the parameters (or the REST body) of a request."""
    if isinstance(request, CreatePushConfigRequest):
        config = request.config.model_dump(mode="json", by_alias=True, exclude_none=True)
        config["taskId"] = request.task_id
        if request.tenant is not None:
            config["tenant"] = request.tenant
        return to_json(config)
    return request.model_dump_json(by_alias=True, exclude_unset=True).encode()


def decode_task(value: Json) -> Task:
    return read(Task, value)


def decode_event(value: Json) -> StreamEvent:
    """Decode an event of a stream, or the result of SendMessage. Raise InvalidParamsError."""
    if isinstance(value, dict):
        for name, model in _EVENTS:
            if value.get(name) is not None:
                return read(model, value[name])
    raise violation("", "one of task, message, statusUpdate and artifactUpdate is required")


_EVENTS: tuple[tuple[str, type[StreamEvent]], ...] = (
    ("task", Task),
    ("message", Message),
    ("statusUpdate", TaskStatusUpdateEvent),
    ("artifactUpdate", TaskArtifactUpdateEvent),
    ("status_update", TaskStatusUpdateEvent),
    ("artifact_update", TaskArtifactUpdateEvent),
)


class _TaskPage(WireModel):
    tasks: Annotated[list[Json], OrNull] = Field(default_factory=list)
    next_page_token: str = ""
    page_size: int = 0
    total_size: int = 0


class _PushConfigPage(WireModel):
    configs: Annotated[list[PushConfig], OrNull] = Field(default_factory=list)
    next_page_token: str = ""


def decode_task_list(value: Json) -> TaskPage:
    page = validate(_TaskPage, value)
    return TaskPage([read(Task, task) for task in page.tasks], page.next_page_token, page.page_size, page.total_size)


def decode_push_config(value: Json) -> PushConfig:
    return validate(PushConfig, value)


def decode_push_config_list(value: Json) -> PushConfigPage:
    page = validate(_PushConfigPage, value)
    return PushConfigPage(page.configs, page.next_page_token)
