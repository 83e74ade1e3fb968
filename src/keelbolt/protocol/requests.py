"""Every request and result, in the format of 1.0, for all versions.

The codecs (`v1`, `v03`, `v03_proto`, `dialect`) build requests from a client's JSON and validate them completely, so
that lower layers never handle JSON. ``tenant`` comes from the path or the field; None if there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from keelbolt.protocol.types import (
    Json,
    Message,
    Metadata,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
    WireModel,
)

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 100


def _no_boolean(value: Json) -> Json:
    if isinstance(value, bool):
        raise ValueError("Input should be a valid integer")  # noqa: TRY004 - pydantic turns ValueErrors into violations
    return value


def _boolean(value: Json) -> Json:
    if value is None or isinstance(value, bool):
        return value or False
    if value in ("true", "false"):  # a query parameter
        return value == "true"
    raise ValueError("Input should be true or false")


def _nothing(value: Json) -> Json:
    """Return None for an empty string: ProtoJSON does not distinguish it from an unset one."""
    return None if value == "" else value


def _empty(value: Json) -> Json:
    return [] if value is None else value


def _state(value: Json) -> Json:
    return None if value in ("", "TASK_STATE_UNSPECIFIED", 0) and value is not False else value


def _unset(value: Json) -> Json:
    return None if value in (0, "0") and value is not False else value


def _moment(value: Json) -> Json:
    if value is None or value == "":
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError("Input should be a timestamp such as 2025-10-28T10:30:00.000Z") from None
    if moment.tzinfo is None:
        raise ValueError("Input should be a timestamp with a time zone, such as 2025-10-28T10:30:00.000Z")
    return moment


def _http_url(value: str) -> str:
    """Check that a webhook URL is HTTP. The sender checks whether its address is allowed."""
    try:
        parts = urlsplit(value)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or not value.isprintable() or " " in value:
        raise ValueError("Input should be a URL that begins with https:// or http://")
    return value


Text = Annotated[str | None, BeforeValidator(_nothing)]
Id = Annotated[str, Field(min_length=1)]
Flag = Annotated[bool, BeforeValidator(_boolean)]
HistoryLength = Annotated[Annotated[int, Field(ge=0, lt=2**31)] | None, BeforeValidator(_no_boolean)]
Generation = Annotated[Annotated[int, Field(ge=0, lt=2**63)] | None, BeforeValidator(_no_boolean)]
PageSize = Annotated[Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE)] | None, BeforeValidator(_no_boolean)]
UnsetPageSize = Annotated[
    Annotated[int, Field(ge=1, lt=2**31)] | None, BeforeValidator(_no_boolean), BeforeValidator(_unset)
]
Status = Annotated[TaskState | None, BeforeValidator(_state)]
Moment = Annotated[datetime | None, BeforeValidator(_moment)]
HttpUrl = Annotated[str, Field(max_length=2048), AfterValidator(_http_url)]
Modes = Annotated[list[str], BeforeValidator(_empty)]


class Authentication(WireModel):
    """How the agent authenticates to a webhook: ``Authorization: {scheme} {credentials}``."""

    scheme: Id
    credentials: Text = None


class PushConfig(WireModel):
    """Where, and how, a client wants to be notified about a task. The server gives it an id if the client does not."""

    id: Text = None
    task_id: Text = None
    url: HttpUrl
    token: Text = None
    authentication: Authentication | None = None
    tenant: Text = None


class SendConfiguration(WireModel):
    """How a message is to be answered. ``history_length``: None is the server's choice, 0 is no history."""

    accepted_output_modes: Modes = Field(default_factory=list)
    task_push_notification_config: PushConfig | None = None
    history_length: HistoryLength = None
    return_immediately: Flag = False


class Request(WireModel):
    """What every request has."""

    tenant: Text = None


class SendMessageRequest(Request):
    """SendMessage, and SendStreamingMessage."""

    message: Message
    configuration: SendConfiguration | None = None
    metadata: Metadata | None = None


class GetTaskRequest(Request):
    """GetTask. ``current_generation`` is of the generation extension: see docs/reference/streams.md."""

    id: Id
    history_length: HistoryLength = None
    current_generation: Generation = None


class ListTasksRequest(Request):
    """ListTasks. ``page_size`` None is 50; ``status_timestamp_after`` includes the moment itself."""

    context_id: Text = None
    status: Status = None
    page_size: PageSize = None
    page_token: Text = None
    history_length: HistoryLength = None
    status_timestamp_after: Moment = None
    include_artifacts: Flag = False


class CancelTaskRequest(Request):
    """CancelTask."""

    id: Id
    metadata: Metadata | None = None


class SubscribeToTaskRequest(Request):
    """SubscribeToTask."""

    id: Id


class CreatePushConfigRequest(Request):
    """CreateTaskPushNotificationConfig."""

    task_id: Id
    config: PushConfig


class GetPushConfigRequest(Request):
    """GetTaskPushNotificationConfig. 0.3 may leave the id out; it then means the task's only config, or its first."""

    task_id: Id
    id: Text = None


class ListPushConfigsRequest(Request):
    """ListTaskPushNotificationConfigs. ``page_size`` None is the server's choice."""

    task_id: Id
    page_size: UnsetPageSize = None
    page_token: Text = None


class DeletePushConfigRequest(Request):
    """DeleteTaskPushNotificationConfig. An id that was left out means every config of the task."""

    task_id: Id
    id: Text = None


class GetExtendedCardRequest(Request):
    """GetExtendedAgentCard."""


StreamEvent: TypeAlias = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""An event of a stream."""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """The result of ListTasks. Tasks are models or 1.0 JSON. ``next_page_token`` is empty on the last page."""

    tasks: Sequence[Task | bytes]
    next_page_token: str
    page_size: int
    total_size: int


@dataclass(frozen=True, slots=True)
class PushConfigPage:
    """The result of ListTaskPushNotificationConfigs."""

    configs: Sequence[PushConfig]
    next_page_token: str = ""


# ---------------------------------------------------------------------------------------------------------------- modes


def accepts(modes: Iterable[str], media_type: str) -> bool:
    """Return whether one of the modes includes this media type; parameters such as ``charset`` do not matter."""
    wanted = _essence(media_type)
    family = wanted.partition("/")[0] + "/*"
    return any(_essence(mode) in (wanted, family, "*/*", "*") for mode in modes)


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()
