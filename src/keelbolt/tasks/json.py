"""Encodes JSON from workers and clients. Values that can't be encoded and decoded raise a typed error."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from keelbolt.errors import InvalidAgentResponseError

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
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidAgentResponseError(f"{what} is not JSON: {_why(error)}") from None
    return data


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not valid JSON")


def _why(error: Exception) -> str:
    text = str(error)
    if "surrogate" in text:
        return "it contains a lone surrogate (half of a character)"
    return text.splitlines()[0][:200] if text else type(error).__name__
