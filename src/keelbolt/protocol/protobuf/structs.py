"""Converts the well-known types for JSON (Struct, ListValue, Value) and Timestamp.

A number in a Struct is a double. An integer within ±2^53 is restored as an integer; a larger one is rounded to the
nearest double, as in every protobuf implementation; one beyond the range of doubles is sent as a decimal string.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from keelbolt.protocol.types import Json
from keelbolt.protocol.validation import violation

EXACT = 2**53
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# --------------------------------------------------------------------------------------------------------------- read


def read_struct(struct: Any) -> dict[str, Json]:
    return {name: read_value(value) for name, value in struct.fields.items()}


def read_list(values: Any) -> list[Json]:
    return [read_value(value) for value in values.values]


def read_value(value: Any) -> Json:
    """Return the JSON value. Raise InvalidParamsError for a number that JSON can't represent."""
    kind = value.WhichOneof("kind")
    match kind:
        case "string_value" | "bool_value":
            return getattr(value, kind)
        case "number_value":
            return _read_number(value.number_value)
        case "struct_value":
            return read_struct(value.struct_value)
        case "list_value":
            return read_list(value.list_value)
        case _:
            return None


def _read_number(number: float) -> int | float:
    if number.is_integer() and abs(number) <= EXACT and (number or math.copysign(1, number) > 0):
        return int(number)
    if not math.isfinite(number):
        raise violation("", "NaN and infinities are not JSON numbers")
    return number


def read_timestamp(timestamp: Any) -> str:
    text: str = timestamp.ToJsonString()
    return text


# -------------------------------------------------------------------------------------------------------------- write


def fill_struct(struct: Any, value: dict[str, Json]) -> None:
    """Copy a JSON object into an empty Struct."""
    fields = struct.fields
    for name, item in value.items():
        fill_value(fields[name], item)


def fill_list(values: Any, value: list[Json]) -> None:
    add = values.values.add
    for item in value:
        fill_value(add(), item)


def fill_value(into: Any, value: Json) -> None:
    """Copy a JSON value into an empty Value."""
    if isinstance(value, str):
        into.string_value = value
    elif isinstance(value, bool):
        into.bool_value = value
    elif value is None:
        into.null_value = 0
    elif isinstance(value, dict):
        into.struct_value.SetInParent()
        fill_struct(into.struct_value, value)
    elif isinstance(value, list):
        into.list_value.SetInParent()
        fill_list(into.list_value, value)
    else:
        try:
            into.number_value = float(value)
        except OverflowError:
            into.string_value = str(value)


def timestamp_parts(text: str) -> dict[str, int]:
    """Return the fields of a Timestamp."""
    past = datetime.fromisoformat(text) - _EPOCH
    return {"seconds": past.days * 86_400 + past.seconds, "nanos": past.microseconds * 1000}
