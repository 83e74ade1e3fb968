"""Limits on the size of one request. Every limit is checked before the request is validated."""

from __future__ import annotations

from dataclasses import dataclass


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
