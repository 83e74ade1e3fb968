"""The lines of an export."""

from __future__ import annotations

from typing import Any

from keelbolt.errors import InvalidState
from keelbolt.state.codec import decode, encode

FORMAT = 1


def line(kind: str, data: bytes | None = None, **more: Any) -> bytes:
    """A line; ``data`` is JSON already."""
    head = encode({"kind": kind, **more})
    return head if data is None else b'%b,"data":%b}' % (head[:-1], data)


def parsed(text: bytes, number: int) -> dict[str, Any]:
    """What a line holds. Raises InvalidState."""
    try:
        found = decode(text)
    except (ValueError, KeyError, TypeError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise InvalidState(f"line {number} is no line of an export")
    return found


def check_first(found: dict[str, Any]) -> None:
    """Refuse what is no export, or one of a later program."""
    if found["kind"] != "keelbolt.state" or not isinstance(found.get("format"), int):
        raise InvalidState("this is no export of keelbolt state: its first line does not say so")
    if found["format"] > FORMAT:
        raise InvalidState(f"this export has format {found['format']}; this program knows {FORMAT}: use a newer one")
