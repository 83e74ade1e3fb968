"""Messages, parts and other values of the agent, as JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from keelbolt.errors import InvalidAgentResponseError
from keelbolt.kernel import new_id
from keelbolt.protocol.types import Part, encode


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


# ----------------------------------------------------------------------------------------------------------------- json


MAX_WORDS_BYTES = 4 * 1024 * 1024  # limit of a message and of a step's result: they are in records that are rewritten
MAX_CHUNK_BYTES = 15 * 1024 * 1024  # limit of one chunk of an artifact, which may have any number of chunks


def bounded(data: bytes, what: str, limit: int = MAX_WORDS_BYTES) -> bytes:
    """Return the bytes; raise InvalidAgentResponseError if there are too many."""
    if len(data) > limit:
        raise InvalidAgentResponseError(
            f"{what} has {len(data)} bytes of JSON, the limit is {limit}; emit it as an artifact in chunks, or by URL"
        )
    return data


def json_bytes(value: Any, what: str) -> bytes:
    """Return the JSON of this value; ``what`` names it in the error."""
    try:
        data = to_json(value)
        if b"NaN" in data or b"Infinity" in data:  # not JSON, unless they are part of a text
            json.dumps(json.loads(data, parse_constant=_refuse))
        check_depth(data)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidAgentResponseError(f"{what} is not JSON: {_why(error)}") from None
    return data


_OUTER = 20  # at most so many levels are around a value: of the task, the list, the response
_SAFE = 150  # far below the limit of the decoder


def check_depth(data: bytes) -> None:
    """Raise ValueError if this JSON nests too deep to be read within a task: every list of the task would fail."""
    if len(data) > 2 * _SAFE and data.count(b"[") + data.count(b"{") > _SAFE:
        from_json(b"[" * _OUTER + data + b"]" * _OUTER)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not valid JSON")


def _why(error: Exception) -> str:
    text = str(error)
    if "surrogate" in text:
        return "it contains a lone surrogate (half of a character)"
    if "recursion limit" in text or "serialization depth" in text:
        return "it nests too deep"
    return text.splitlines()[0][:200] if text else type(error).__name__
