"""What a caller says, as a message: a text, a Message, parts, or a dict in the words of 1.0 or 0.3."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from keelbolt.errors import InvalidParamsError
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import SendMessageRequest
from keelbolt.protocol.types import Message, Part, Role
from keelbolt.protocol.validation import validate

Said = str | Message | Mapping[str, Any] | Sequence[Part]


def new_id() -> str:
    return str(uuid.uuid4())


def message_of(
    said: Said, *, message_id: str | None = None, context_id: str | None = None, task_id: str | None = None
) -> Message:
    """The message. One without an id is given one; ids given here go before those in it. Raises InvalidParamsError."""
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
        raise InvalidParamsError("a message has at least one part")
    return message


def _from_dict(given: dict[str, Any]) -> Message:
    given.setdefault("role", "user")
    if not given.get("messageId") and not given.get("message_id"):
        given["messageId"] = new_id()
    parts = given.get("parts")
    if isinstance(parts, list) and any(isinstance(part, dict) and {"kind", "type"} & part.keys() for part in parts):
        from keelbolt.protocol import dialect  # noqa: PLC0415 - for those who speak as in 0.3

        request = dialect.decode(Operation.send_message, {"message": given})
        assert isinstance(request, SendMessageRequest)
        return request.message
    return validate(Message, given)
