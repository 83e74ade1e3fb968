"""Builds messages from a text, a Message, parts, or a dict in the format of 1.0 or 0.3."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from keelbolt.errors import InvalidParamsError
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import PushConfig, SendConfiguration, SendMessageRequest
from keelbolt.protocol.types import Message, Metadata, Part, Role
from keelbolt.protocol.validation import validate

Said = str | Message | Mapping[str, Any] | Sequence[Part]


def new_id() -> str:
    return str(uuid.uuid4())


def message_of(
    said: Said, *, message_id: str | None = None, context_id: str | None = None, task_id: str | None = None
) -> Message:
    """Return the message; a missing id is generated, and ids given here take precedence. Raise InvalidParamsError."""
    if isinstance(said, str):
        message = Message(message_id=message_id or new_id(), role=Role.user, parts=[Part(text=said)])
    elif isinstance(said, Message):
        message = said.model_copy()
    elif isinstance(said, Mapping):
        message = _from_dict(dict(said))
    else:
        message = Message(message_id=message_id or new_id(), role=Role.user, parts=list(said))
    for name, value in (("message_id", message_id), ("context_id", context_id), ("task_id", task_id)):
        if value is not None:
            setattr(message, name, value)
    if not message.parts:
        raise InvalidParamsError("a message must have at least one part")
    return message


def _from_dict(given: dict[str, Any]) -> Message:
    given.setdefault("role", "user")
    if not given.get("messageId") and not given.get("message_id"):
        given["messageId"] = new_id()
    parts = given.get("parts")
    if isinstance(parts, list) and any(isinstance(part, dict) and {"kind", "type"} & part.keys() for part in parts):
        from keelbolt.protocol import dialect  # noqa: PLC0415 - only for messages in the format of 0.3

        request = dialect.decode(Operation.send_message, {"message": given})
        assert isinstance(request, SendMessageRequest)
        return request.message
    return validate(Message, given)


def send_request(
    message: Message,
    *,
    metadata: Metadata | None,
    skill: str | None,
    return_immediately: bool,
    history_length: int | None,
    accepted_output_modes: Sequence[str],
    push_config: PushConfig | None,
) -> SendMessageRequest:
    """Return the request for a message. The skill is in both metadata, because agents differ in where they look."""
    if skill is not None:
        message = message.model_copy(update={"metadata": {"skillId": skill, **(message.metadata or {})}})
        metadata = {"skillId": skill, **(metadata or {})}
    wanted: dict[str, Any] = {}
    if return_immediately:
        wanted["return_immediately"] = True
    if history_length is not None:
        wanted["history_length"] = history_length
    if accepted_output_modes:
        wanted["accepted_output_modes"] = list(accepted_output_modes)
    if push_config is not None:
        wanted["task_push_notification_config"] = push_config
    given: dict[str, Any] = {"message": message}
    if wanted:
        given["configuration"] = SendConfiguration(**wanted)
    if metadata is not None:
        given["metadata"] = metadata
    return SendMessageRequest(**given)
