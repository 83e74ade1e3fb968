"""The types of A2A 1.0, which workers receive, which are stored, and which are sent.

Encoding omits fields that were not set, so that decoded data round-trips:

    encode(Message.model_validate_json(text)) == text
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator
from pydantic.alias_generators import to_camel

Json = Any  # any JSON value; a recursive type does not help editors
Metadata = dict[str, Json]


class TaskState(StrEnum):
    """Where a task stands. ``TaskState("input-required")`` and ``TaskState("input_required")`` are understood too."""

    submitted = "TASK_STATE_SUBMITTED"
    working = "TASK_STATE_WORKING"
    input_required = "TASK_STATE_INPUT_REQUIRED"
    auth_required = "TASK_STATE_AUTH_REQUIRED"
    completed = "TASK_STATE_COMPLETED"
    failed = "TASK_STATE_FAILED"
    canceled = "TASK_STATE_CANCELED"
    rejected = "TASK_STATE_REJECTED"

    __hash__ = str.__hash__  # implemented in C; Enum's own is Python

    @property
    def terminal(self) -> bool:
        """Whether the task is over: no state follows."""
        return self in TERMINAL

    @property
    def paused(self) -> bool:
        """Whether the task waits for its user."""
        return self in PAUSED

    @classmethod
    def _missing_(cls, value: object) -> TaskState | None:
        if not isinstance(value, str):
            return _STATE_NUMBERS.get(value) if type(value) is int else None
        name = value.lower().replace("-", "_").removeprefix("task_state_")
        return cls.__members__.get("canceled" if name == "cancelled" else name)


# ProtoJSON may represent an enum by its number.
_STATE_NUMBERS = {
    1: TaskState.submitted,
    2: TaskState.working,
    3: TaskState.completed,
    4: TaskState.failed,
    5: TaskState.canceled,
    6: TaskState.input_required,
    7: TaskState.rejected,
    8: TaskState.auth_required,
}

TERMINAL = frozenset({TaskState.completed, TaskState.failed, TaskState.canceled, TaskState.rejected})
PAUSED = frozenset({TaskState.input_required, TaskState.auth_required})


class Role(StrEnum):
    """Who speaks."""

    user = "ROLE_USER"
    agent = "ROLE_AGENT"

    @classmethod
    def _missing_(cls, value: object) -> Role | None:
        if not isinstance(value, str):
            return {1: Role.user, 2: Role.agent}.get(value) if type(value) is int else None
        return cls.__members__.get(value.lower())


class WireModel(BaseModel):
    """Spelled in camelCase outside, in snake_case inside; fields of the future are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", use_enum_values=False, ser_json_inf_nan="null"
    )


def _decoded(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:  # also for characters that are not ASCII
        raise ValueError("raw is not base64") from error


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


Raw = Annotated[
    bytes, BeforeValidator(_decoded), PlainSerializer(_encoded, return_type=str, when_used="json-unless-none")
]

_CONTENT = frozenset({"text", "raw", "url", "data"})


class Part(WireModel):
    """A piece of content: exactly one of text, raw (bytes, base64 on the wire), url and data (any JSON)."""

    text: str | None = None
    raw: Raw | None = None
    url: str | None = None
    data: Json = None
    metadata: Metadata | None = None
    filename: str | None = None
    media_type: str | None = None

    @model_validator(mode="after")
    def _one_content(self) -> Self:
        if len(self.model_fields_set) == 1 and self.text is not None:  # the common case
            return self
        given = [name for name in self.model_fields_set & _CONTENT if name == "data" or getattr(self, name) is not None]
        if len(given) > 1 and self.data is None and "data" in given:  # a null beside other content is no content
            given.remove("data")
        if len(given) != 1:
            raise ValueError("a part must have exactly one of text, raw, url and data")
        # Remove nulls beside the content: when encoded again, protobuf would read "data": null as content.
        for name in self.model_fields_set.difference(given):
            if getattr(self, name) is None:
                self.model_fields_set.discard(name)
        return self

    @property
    def kind(self) -> str:
        """The kind of content: text, raw, url or data."""
        if self.text is not None:
            return "text"
        if self.raw is not None:
            return "raw"
        return "url" if self.url is not None else "data"


class Message(WireModel):
    """One utterance of the user or the agent."""

    message_id: str = Field(min_length=1)
    role: Role
    parts: list[Part]
    context_id: str | None = None
    task_id: str | None = None
    metadata: Metadata | None = None
    extensions: list[str] | None = None
    reference_task_ids: list[str] | None = None

    @property
    def text(self) -> str:
        """The text parts, joined by line feeds."""
        return "\n".join(part.text for part in self.parts if part.text is not None)


class Artifact(WireModel):
    """Something the agent made."""

    artifact_id: str = Field(min_length=1)
    parts: list[Part]
    name: str | None = None
    description: str | None = None
    metadata: Metadata | None = None
    extensions: list[str] | None = None


class TaskStatus(WireModel):
    """Where a task stands, since when, and what the agent said about it."""

    state: TaskState
    message: Message | None = None
    timestamp: str | None = None


def _list(value: object) -> object:
    return [] if value is None else value


def _flag(value: object) -> object:
    return False if value is None else value


OrNull = BeforeValidator(_list)  # in ProtoJSON null is the same as absent
FlagOrNull = BeforeValidator(_flag)


class Task(WireModel):
    """A task as its client sees it."""

    id: str
    context_id: str
    status: TaskStatus
    artifacts: Annotated[list[Artifact], OrNull] = []
    history: Annotated[list[Message], OrNull] = []
    metadata: Metadata | None = None


class TaskStatusUpdateEvent(WireModel):
    """The status of a task changed."""

    task_id: str
    context_id: str
    status: TaskStatus
    metadata: Metadata | None = None


class TaskArtifactUpdateEvent(WireModel):
    """An artifact is new (or replaced), or, with ``append``, has more parts; ``last_chunk``: it is finished."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: Annotated[bool, FlagOrNull] = False
    last_chunk: Annotated[bool, FlagOrNull] = False
    metadata: Metadata | None = None


def encode(model: WireModel) -> bytes:
    """Return the JSON of a model, with the fields that were set."""
    # Model has no private attributes and no computed fields, so pydantic's own serializer is enough.
    return model.__pydantic_serializer__.to_json(model, by_alias=True, exclude_unset=True)


def timestamp(microseconds: int) -> str:
    """Format a time (microseconds since 1970) for the wire: UTC, milliseconds, Z."""
    return f"{_second(microseconds // 1_000_000)}.{microseconds // 1000 % 1000:03d}Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
