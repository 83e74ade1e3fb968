"""The words of A2A, as version 1.0 spells them: what workers are given, what is stored, what is sent.

A field that nobody set is left out when a model is written, so that what was read comes back as it was:

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

Json = Any  # what a JSON document can hold; spelling out the recursion helps no editor
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

    __hash__ = str.__hash__  # in C; Enum has its own in Python

    @property
    def terminal(self) -> bool:
        """The task is over: nothing leads out of this state."""
        return self in TERMINAL

    @property
    def paused(self) -> bool:
        """The task waits for its user."""
        return self in PAUSED

    @classmethod
    def _missing_(cls, value: object) -> TaskState | None:
        if not isinstance(value, str):
            return _STATE_NUMBERS.get(value) if type(value) is int else None
        name = value.lower().replace("-", "_").removeprefix("task_state_")
        return cls.__members__.get("canceled" if name == "cancelled" else name)


# Protobuf's JSON may name an enum by its number.
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


class Model(BaseModel):
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
    except ValueError as error:  # characters that are not ASCII too
        raise ValueError("raw is not base64") from error


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


Raw = Annotated[
    bytes, BeforeValidator(_decoded), PlainSerializer(_encoded, return_type=str, when_used="json-unless-none")
]

_CONTENT = frozenset({"text", "raw", "url", "data"})


class Part(Model):
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
        if len(self.model_fields_set) == 1 and self.text is not None:  # nearly every part there is
            return self
        given = [name for name in self.model_fields_set & _CONTENT if name == "data" or getattr(self, name) is not None]
        if len(given) > 1 and self.data is None and "data" in given:  # a null beside something else is no content
            given.remove("data")
        if len(given) != 1:
            raise ValueError("a part has exactly one of text, raw, url and data")
        # A null beside the content says nothing, but written out again, protobuf would take "data": null for content.
        for name in self.model_fields_set.difference(given):
            if getattr(self, name) is None:
                self.model_fields_set.discard(name)
        return self

    @property
    def kind(self) -> str:
        """Which of them it is: text, raw, url or data."""
        if self.text is not None:
            return "text"
        if self.raw is not None:
            return "raw"
        return "url" if self.url is not None else "data"


class Message(Model):
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
        """Its text parts, joined by line feeds."""
        return "\n".join(part.text for part in self.parts if part.text is not None)


class Artifact(Model):
    """Something the agent made."""

    artifact_id: str = Field(min_length=1)
    parts: list[Part]
    name: str | None = None
    description: str | None = None
    metadata: Metadata | None = None
    extensions: list[str] | None = None


class TaskStatus(Model):
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


class Task(Model):
    """A task as its client sees it."""

    id: str
    context_id: str
    status: TaskStatus
    artifacts: Annotated[list[Artifact], OrNull] = []
    history: Annotated[list[Message], OrNull] = []
    metadata: Metadata | None = None


class TaskStatusUpdateEvent(Model):
    """The status of a task changed."""

    task_id: str
    context_id: str
    status: TaskStatus
    metadata: Metadata | None = None


class TaskArtifactUpdateEvent(Model):
    """An artifact is new (or replaced), or, with ``append``, has more parts; ``last_chunk``: it is finished."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: Annotated[bool, FlagOrNull] = False
    last_chunk: Annotated[bool, FlagOrNull] = False
    metadata: Metadata | None = None


def encode(model: Model) -> bytes:
    """The JSON of a model, with the fields that were set."""
    # Model has no private attributes and no computed fields, so that pydantic's own serializer is all it takes.
    return model.__pydantic_serializer__.to_json(model, by_alias=True, exclude_unset=True)


def timestamp(microseconds: int) -> str:
    """A moment (microseconds since 1970) as the wire has it: UTC, milliseconds, Z."""
    return f"{_second(microseconds // 1_000_000)}.{microseconds // 1000 % 1000:03d}Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
