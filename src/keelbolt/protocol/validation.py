"""Validates data into models, and converts pydantic's errors to field violations.

A violation has the field's wire name and a reason; it never includes the value, which may be a secret.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from keelbolt.errors import FieldViolation, InvalidParamsError
from keelbolt.protocol.types import Json, WireModel

MAX_VIOLATIONS = 20  # enough for a reader; a hostile request can have a million

T = TypeVar("T", bound=WireModel)


def validate(model: type[T], value: Json) -> T:
    """Return the model of a JSON value. Raise InvalidParamsError."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidParamsError(violations=violations(error)) from None


def violations(error: ValidationError) -> list[FieldViolation]:
    """Return pydantic's errors as field violations."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [FieldViolation(path(item["loc"]), _plain(item["msg"])) for item in found[:MAX_VIOLATIONS]]


def path(location: tuple[int | str, ...]) -> str:
    """Format ("message", "parts", 0, "text") as message.parts[0].text."""
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step[:100]}" if text else step[:100]
    return text


def violation(field: str, description: str) -> InvalidParamsError:
    """Return an error with one field violation."""
    return InvalidParamsError(violations=[FieldViolation(field, description)])


def _plain(message: str) -> str:
    """Return pydantic's message with JSON terms."""
    plain = message.removeprefix("Value error, ")
    for python, wire in _WORDS:
        plain = plain.replace(python, wire)
    return plain


_WORDS = (
    ("Field required", "is required"),
    ("a valid dictionary or instance of ", "an object: "),
    ("a valid dictionary", "an object"),
    ("a valid list", "an array"),
    ("a valid integer", "an integer"),
    ("a valid ", "a "),
    (", unable to parse string as an integer", ""),
    (", got a number with a fractional part", ""),
)
