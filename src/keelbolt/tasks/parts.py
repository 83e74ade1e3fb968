"""Messages and parts of the agent, as JSON."""

from __future__ import annotations

import base64
from typing import Any

from pydantic_core import to_json

from keelbolt.errors import InvalidAgentResponseError
from keelbolt.kernel import new_id
from keelbolt.protocol.types import Part, encode
from keelbolt.tasks.json import json_bytes


def agent_message(task_id: str, context_id: str, parts: bytes) -> bytes:
    """Return a new message of the agent, as JSON."""
    return b'{"messageId":"%b","role":"ROLE_AGENT","parts":[%b],"taskId":%b,"contextId":%b}' % (
        new_id().encode(),
        parts,
        to_json(task_id),
        to_json(context_id),
    )


def text_part(text: str) -> bytes:
    return b'{"text":%b}' % json_text(text)


def data_part(data: Any) -> bytes:
    return b'{"data":%b}' % json_bytes(data, "the data")


def json_text(text: str) -> bytes:
    if not isinstance(text, str):
        raise InvalidAgentResponseError(f"text must be a string, not {type(text).__name__}")
    return json_bytes(plain(text), "the text")


def plain(text: str) -> str:
    """Return a plain `str`, also for a `StrEnum` or another subclass."""
    return text if type(text) is str else str.__str__(text)


def content_part(content: dict[str, Any], *, media_type: str | None = None, filename: str | None = None) -> bytes:
    ((kind, value),) = content.items()
    if kind == "data":
        json = json_bytes(value, "the data")
    elif kind != "raw":
        json = json_text(value)
    elif isinstance(value, bytes | bytearray | memoryview):
        json = b'"%b"' % base64.b64encode(value)
    else:
        raise InvalidAgentResponseError(f"file_bytes must be bytes, not {type(value).__name__}")
    more = b""
    for name, text in ((b"filename", filename), (b"mediaType", media_type)):
        if text is not None:
            more += b',"%b":%b' % (name, json_text(text))
    return b'{"%b":%b%b}' % (kind.encode(), json, more)


def encoded_part(part: Part) -> bytes:
    if not isinstance(part, Part):
        raise InvalidAgentResponseError(f"parts must be Part objects, not {type(part).__name__}")
    json_bytes([part.data, part.metadata], "a part")
    try:
        return encode(part)
    except ValueError as error:
        raise InvalidAgentResponseError(f"a part is not JSON: {str(error).splitlines()[0][:200]}") from None
