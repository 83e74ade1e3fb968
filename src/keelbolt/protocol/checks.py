"""Checks that apply to requests of every version and binding: sizes before validation, roles and ids after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from keelbolt.errors import RequestTooLargeError
from keelbolt.protocol.limits import Limits
from keelbolt.protocol.requests import (
    CreatePushConfigRequest,
    PushConfig,
    Request,
    SendMessageRequest,
)
from keelbolt.protocol.types import Json, Message, Role
from keelbolt.protocol.validation import path, violation

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
