"""Steering: events that users send to a running task are validated by type and truncated before they are stored.

A payload is untrusted. Stores call `checked` before they save an event: it truncates the payload to five limits, so
that nothing deep, wide or long is stored, and returns the reasons if an event is not valid for its type. Sessions
reject invalid events before they act on them. `SteeringEvent.to_injection` shows the event to the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Protocol, Self, TypeVar

from keelbolt.errors import SteeringValidationError

MAX_STEERING_PAYLOAD_BYTES: Final = 16_384
MAX_STEERING_DEPTH: Final = 6
MAX_STEERING_KEYS: Final = 64
MAX_STEERING_LIST_ITEMS: Final = 50
MAX_STEERING_STRING: Final = 4_096
KEY_CHARS: Final = 64
CUT: Final = "<truncated>"


class SteeringLike(Protocol):
    """The attributes of a SteeringEvent used here; Keelbolt's and penguiflow's class have them."""

    @property
    def event_type(self) -> Any: ...
    @property
    def payload(self) -> Any: ...
    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self: ...


E = TypeVar("E", bound=SteeringLike)


def checked(event: E) -> tuple[E, list[str]]:
    """Return the truncated event, and the reasons why it is not valid for its type; empty if it is valid."""
    try:
        validate_steering_event(event)
    except SteeringValidationError as error:
        return sanitize_steering_event(event), error.errors
    return sanitize_steering_event(event), []


# ------------------------------------------------------------------------------------------------------- the limits


def sanitize_steering_event(event: E, *, max_payload_bytes: int = MAX_STEERING_PAYLOAD_BYTES) -> E:
    """Return a copy of the event whose payload is within the limits."""
    payload = sanitize_payload(event.payload or {}, max_payload_bytes=max_payload_bytes)
    return event.model_copy(update={"payload": payload})


def sanitize_payload(payload: Any, *, max_payload_bytes: int = MAX_STEERING_PAYLOAD_BYTES) -> dict[str, Any]:
    """Return any value as JSON within the limits; a payload that is still too large is replaced by its beginning."""
    sanitized = _cut(payload, MAX_STEERING_DEPTH)
    if not isinstance(sanitized, dict):
        sanitized = {"value": sanitized}
    try:
        raw = json.dumps(sanitized, ensure_ascii=False)
    except (TypeError, ValueError):  # an integer of thousands of digits
        return {"value": _text(payload), "truncated": True}
    if len(raw.encode()) <= max_payload_bytes:
        return sanitized
    return {"truncated": True, "summary": raw[:MAX_STEERING_STRING]}


def _cut(value: Any, depth: int) -> Any:
    if depth <= 0:
        return CUT
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, dict):
        cut: dict[str, Any] = {}
        for position, (key, item) in enumerate(value.items()):
            if position == MAX_STEERING_KEYS:
                cut["__truncated_keys__"] = True
                break
            cut[_text(key)[:KEY_CHARS]] = _cut(item, depth - 1)
        return cut
    if isinstance(value, (list, tuple, set)):
        items = [_cut(item, depth - 1) for item in list(value)[:MAX_STEERING_LIST_ITEMS]]
        return [*items, CUT] if len(value) > MAX_STEERING_LIST_ITEMS else items
    return _text(value)


def _text(value: Any) -> str:
    try:
        text = str.__str__(value) if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001  (a custom __str__ may raise anything; so may an integer of thousands of digits)
        return f"<{type(value).__name__}>"
    text = text[:MAX_STEERING_STRING]
    return text.encode(errors="replace").decode()  # a lone surrogate can't be sent or stored as UTF-8


# ------------------------------------------------------------------------------------------------ validation by type


def validate_steering_event(event: SteeringLike) -> None:
    """Raise SteeringValidationError, with every reason, if the payload is not valid for the event's type."""
    payload = event.payload
    if not isinstance(payload, dict):
        raise SteeringValidationError(["payload must be an object"])
    name = _name(event.event_type)
    if errors := [complaint for complaint in _RULES.get(name, _free)(name, payload) if complaint]:
        raise SteeringValidationError(errors)


Complaints = list[str | None]
Rule = Callable[[str, dict[str, Any]], Complaints]


def _free(_name: str, _payload: dict[str, Any]) -> Complaints:
    return []


def _inject_context(name: str, payload: dict[str, Any]) -> Complaints:
    return [
        _filled(name, payload, "text"),
        _one_of(name, payload, "scope", ("foreground", "task_only")),
        _one_of(name, payload, "severity", ("note", "correction")),
    ]


def _redirect(name: str, payload: dict[str, Any]) -> Complaints:
    return [_filled(name, payload, "instruction", "goal", "query"), _kind(name, payload, "constraints", dict)]


def _cancel(name: str, payload: dict[str, Any]) -> Complaints:
    return [_kind(name, payload, "reason", str), _kind(name, payload, "hard", bool)]


def _prioritize(name: str, payload: dict[str, Any]) -> Complaints:
    priority = payload.get("priority")
    whole = isinstance(priority, int) and not isinstance(priority, bool)
    return [None if whole else f"{name} requires integer 'priority'"]


def _decide(name: str, payload: dict[str, Any]) -> Complaints:
    return [
        _filled(name, payload, "resume_token", "patch_id", "event_id"),
        _kind(name, payload, "decision", str),
    ]


def _pause(name: str, payload: dict[str, Any]) -> Complaints:
    return [_kind(name, payload, "reason", str)]


def _user_message(name: str, payload: dict[str, Any]) -> Complaints:
    return [_filled(name, payload, "text"), _kind(name, payload, "active_tasks", list)]


_RULES: Final[dict[str, Rule]] = {
    "INJECT_CONTEXT": _inject_context,
    "REDIRECT": _redirect,
    "CANCEL": _cancel,
    "PRIORITIZE": _prioritize,
    "APPROVE": _decide,
    "REJECT": _decide,
    "PAUSE": _pause,
    "RESUME": _pause,
    "USER_MESSAGE": _user_message,
}

_KINDS: Final[dict[type, str]] = {str: "a string", bool: "a boolean", dict: "an object", list: "a list"}


def _filled(name: str, payload: dict[str, Any], *fields: str) -> str | None:
    given = next((payload[field] for field in fields if payload.get(field)), None)
    if isinstance(given, str) and given.strip():
        return None
    others = f" (or {'/'.join(repr(field) for field in fields[1:])})" if fields[1:] else ""
    return f"{name} requires non-empty {fields[0]!r}{others}"


def _one_of(name: str, payload: dict[str, Any], field: str, allowed: tuple[str, ...]) -> str | None:
    if payload.get(field) in (None, *allowed):
        return None
    return f"{name} {field!r} must be {' or '.join(repr(value) for value in allowed)}"


def _kind(name: str, payload: dict[str, Any], field: str, kind: type) -> str | None:
    value = payload.get(field)
    return None if value is None or isinstance(value, kind) else f"{name} {field!r} must be {_KINDS[kind]}"


def _name(event_type: object) -> str:
    return str(event_type.value if isinstance(event_type, Enum) else event_type)
