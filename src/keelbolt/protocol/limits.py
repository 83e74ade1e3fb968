"""How much one request may hold. The defaults are generous for people and small for a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What is over a limit is refused with RequestTooLargeError, before anything else is done with it."""

    body_bytes: int = 10 * 1024 * 1024
    body_seconds: float = 60.0  # until all of it is here
    depth: int = 64  # levels of arrays and objects
    parts: int = 1000  # of one message
    id_characters: int = 1024  # of a task, context, message, config or tenant id


DEFAULT = Limits()
