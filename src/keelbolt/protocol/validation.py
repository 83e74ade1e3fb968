"""Checks of requests, for every version and binding: sizes before validation, field violations, then roles and ids.

A violation has the field's wire name and a reason; it never includes the value, which may be a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from keelbolt.errors import FieldViolation, InvalidParamsError, RequestTooLargeError
from keelbolt.protocol.requests import (
    CreatePushConfigRequest,
    PushConfig,
    Request,
    SendMessageRequest,
)
from keelbolt.protocol.types import Json, Message, Role, WireModel

R = TypeVar("R", bound=Request)

_IDS = (
    ("tenant", "tenant"),
    ("id", "id"),
    ("task_id", "taskId"),
    ("context_id", "contextId"),
    ("page_token", "pageToken"),
)


_CONTAINERS = frozenset({dict, list})


def bounded(params: Mapping[str, Json], limits: Limits) -> None:
    """Raise RequestTooLargeError if a list of the protocol has too many items, or a metadata too many keys.

    Pydantic collects an error for each wrong item, so the lists are measured before validation.
    """
    open_values: list[tuple[tuple[int | str, ...], Any]] = [((), params)]
    while open_values:
        location, value = open_values.pop()
        if len(value) > limits.items:
            what = path(location) or "the request"
            raise RequestTooLargeError(f"{what} has {len(value)} items; the limit is {limits.items}")
        if location[-1:] == ("metadata",):  # its values are free-form JSON, as in data
            continue
        for key, item in enumerate(value) if isinstance(value, list) else value.items():
            if type(item) in _CONTAINERS and key != "data":
                open_values.append(((*location, key), item))


def checked(request: R, limits: Limits) -> R:
    """Return the request if it is valid. Raise InvalidParamsError or RequestTooLargeError."""
    if isinstance(request, SendMessageRequest):
        _short(request.tenant, "tenant", limits)
        _check_message(request.message, limits)
        if request.configuration is not None and request.configuration.task_push_notification_config is not None:
            _check_config(request.configuration.task_push_notification_config, limits)
        return request
    for name, field in _IDS:
        _short(getattr(request, name, None), field, limits)
    if isinstance(request, CreatePushConfigRequest):
        _check_config(request.config, limits)
    return request


def _check_message(message: Message, limits: Limits) -> None:
    if message.role is not Role.user:
        raise violation("message.role", "must be ROLE_USER for a message of a client")
    if not message.parts:
        raise violation("message.parts", "at least one part is required")
    _short(message.message_id, "message.messageId", limits)
    for name, field in _IDS[2:4]:
        value = getattr(message, name)
        if value:
            _short(value, f"message.{field}", limits)
        elif name in message.model_fields_set:
            # Protobuf treats an empty id as absent.
            setattr(message, name, None)
            message.model_fields_set.discard(name)


def _check_config(config: PushConfig, limits: Limits) -> None:
    _short(config.id, "id", limits)


def _short(value: str | None, field: str, limits: Limits) -> None:
    if value is not None and len(value) > limits.id_characters:
        raise violation(field, f"has {len(value)} characters; the limit is {limits.id_characters}")


# --------------------------------------------------------------------------------------------------------------- limits


@dataclass(frozen=True, slots=True)
class Limits:
    """A request over a limit raises RequestTooLargeError."""

    body_bytes: int = 10 * 1024 * 1024
    body_seconds: float = 60.0  # time limit for the whole body
    depth: int = 64  # levels of arrays and objects
    values: int = 100_000  # JSON values, or fields of a protobuf message
    items: int = 1000  # of one list of the protocol (parts, modes, extensions, references); keys of one metadata
    id_characters: int = 1024  # of a task, context, message, config or tenant id


DEFAULT = Limits()


# ----------------------------------------------------------------------------------------------------------- validation


MAX_VIOLATIONS = 20  # enough for a reader; a hostile request can have a million

T = TypeVar("T", bound=WireModel)


def validate(model: type[T], value: Json) -> T:
    """Return the model of a JSON value. Raise InvalidParamsError."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidParamsError(violations=violations(error)) from None


def violations(error: ValidationError) -> list[FieldViolation]:
    """Return pydantic's errors as field violations."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [FieldViolation(path(item["loc"]), _plain(item["msg"])) for item in found[:MAX_VIOLATIONS]]


def path(location: tuple[int | str, ...]) -> str:
    """Format ("message", "parts", 0, "text") as message.parts[0].text."""
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step[:100]}" if text else step[:100]
    return text


def violation(field: str, description: str) -> InvalidParamsError:
    """Return an error with one field violation."""
    return InvalidParamsError(violations=[FieldViolation(field, description)])


def _plain(message: str) -> str:
    """Return pydantic's message with JSON terms."""
    plain = message.removeprefix("Value error, ")
    for python, wire in _WORDS:
        plain = plain.replace(python, wire)
    return plain


_WORDS = (
    ("Field required", "is required"),
    ("a valid dictionary or instance of ", "an object: "),
    ("a valid dictionary", "an object"),
    ("a valid list", "an array"),
    ("a valid integer", "an integer"),
    ("a valid ", "a "),
    (", unable to parse string as an integer", ""),
    (", got a number with a fractional part", ""),
)
