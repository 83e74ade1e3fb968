"""Converts the official messages to JSON values and back: ProtoJSON, with tables built once from the descriptors.

`google.protobuf.json_format` does the same, but is thirty times slower; the tests compare the two. The input of writing
is our own codecs' output: a member that a message does not have is omitted. A number in a Struct is a double. An
integer within ±2^53 is restored as an integer; a larger one is rounded to the nearest double, as in every protobuf
implementation; one beyond the range of doubles is sent as a decimal string. Protobuf readers refuse messages that nest
deeper than 100 levels; a value that nests deeper than `ROOM` allows is sent as a string of its JSON.

Importing this module raises MissingExtra if protobuf or the official SDK is not installed.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any, TypeAlias

from pydantic_core import to_json

from keelbolt.protocol.protobuf.extra import load
from keelbolt.protocol.types import Json
from keelbolt.protocol.validation import violation

EXACT = 2**53
ROOM = 90  # nested messages within a Struct or Value; protobuf allows 100, and up to 8 of them are around it
_OBJECT, _ARRAY = 3, 2  # nested messages per level of an object (Struct, entry, Value) and an array (ListValue, Value)
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
    """Return the time as text. Raise InvalidParamsError for one outside of the years 1 to 9999."""
    try:
        text: str = timestamp.ToJsonString()
    except ValueError:
        raise violation("", "a timestamp must be in the years 1 to 9999, with 0 to 999,999,999 nanoseconds") from None
    return text


# -------------------------------------------------------------------------------------------------------------- write


def fill_struct(struct: Any, value: dict[str, Json], room: int = ROOM) -> None:
    """Copy a JSON object into an empty Struct, with at most ``room`` nested messages."""
    fields = struct.fields
    for name, item in value.items():
        fill_value(fields[name], item, room - _OBJECT)


def fill_list(values: Any, value: list[Json], room: int = ROOM) -> None:
    add = values.values.add
    for item in value:
        fill_value(add(), item, room - _ARRAY)


def fill_value(into: Any, value: Json, room: int = ROOM) -> None:
    """Copy a JSON value into an empty Value."""
    if isinstance(value, str):
        into.string_value = value
    elif isinstance(value, bool):
        into.bool_value = value
    elif value is None:
        into.null_value = 0
    elif isinstance(value, dict | list) and room < _OBJECT:
        into.string_value = to_json(value).decode()
    elif isinstance(value, dict):
        into.struct_value.SetInParent()
        fill_struct(into.struct_value, value, room)
    elif isinstance(value, list):
        into.list_value.SetInParent()
        fill_list(into.list_value, value, room)
    else:
        try:
            into.number_value = float(value)
        except OverflowError:
            into.string_value = str(value)


def timestamp_parts(text: str) -> dict[str, int]:
    """Return the fields of a Timestamp."""
    past = datetime.fromisoformat(text) - _EPOCH
    return {"seconds": past.days * 86_400 + past.seconds, "nanos": past.microseconds * 1000}


Convert = Callable[[Any], Any]


@cache
def shape(descriptor: Descriptor) -> MessageConverter:
    """Return the cached shape of a message type."""
    return MessageConverter(descriptor)


class MessageConverter:
    """Converts one message type to JSON and back."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor

    @cached_property
    def _readers(self) -> dict[Field, tuple[str, Convert]]:
        return {field: (field.json_name, _reader(field)) for field in self._descriptor.fields}

    @cached_property
    def _writers(self) -> dict[str, tuple[str, Convert, bool]]:
        return {
            field.json_name: (field.name, _writer(field), _kind(field) == _VALUE) for field in self._descriptor.fields
        }

    def read(self, message: Any) -> dict[str, Json]:
        """Return the message as a JSON value, without unset fields."""
        readers = self._readers
        found = {}
        for field, value in message.ListFields():
            name, convert = readers[field]
            found[name] = convert(value)
        return found

    def parts(self, value: dict[str, Json]) -> dict[str, Any]:
        """Return the keyword arguments for the message class. Null is the same as absent, except in free-form JSON."""
        writers = self._writers
        found = {}
        for name, item in value.items():
            if (writer := writers.get(name)) is not None:
                field, convert, nullable = writer
                if item is not None or nullable:
                    found[field] = convert(item)
        return found


_VALUE = "google.protobuf.Value"
_TIMESTAMP = "google.protobuf.Timestamp"


def _same(value: Any) -> Any:
    return value


def _kind(field: Field) -> str:
    return "" if field.message_type is None else str(field.message_type.full_name)


def _is_map(field: Field) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _is_repeated(field: Field) -> bool:
    # Protobuf 7 has no labels; protobuf 5 has only labels.
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


# --------------------------------------------------------------------------------------------------------------- read

_READERS: dict[str, Convert] = {
    "google.protobuf.Struct": read_struct,
    "google.protobuf.ListValue": read_list,
    _VALUE: read_value,
    _TIMESTAMP: read_timestamp,
}


def _reader(field: Field) -> Convert:
    if _is_map(field):
        inner = _read_one(field.message_type.fields_by_name["value"])
        return lambda value: {name: inner(item) for name, item in value.items()}
    one = _read_one(field)
    if _is_repeated(field):
        return list if one is _same else lambda values: [one(value) for value in values]
    return one


def _read_one(field: Field) -> Convert:
    if field.message_type is not None:
        return _READERS.get(_kind(field)) or shape(field.message_type).read
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, number)
    if field.type == field.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode()
    return _same


# -------------------------------------------------------------------------------------------------------------- write

_FILLERS: dict[str, Callable[[Any, Any], None]] = {
    "google.protobuf.Struct": fill_struct,
    "google.protobuf.ListValue": fill_list,
    _VALUE: fill_value,
}


def _writer(field: Field) -> Convert:
    if _is_map(field):
        return _map_writer(field.message_type.fields_by_name["value"])
    one = _write_one(field)
    if _is_repeated(field):
        return _same if one is _same else lambda values: [one(value) for value in values]
    return one


def _map_writer(field: Field) -> Convert:
    if field.message_type is None:
        return _same
    inner, kind = _write_one(field), message_class(field.message_type)
    return lambda value: {name: kind(**inner(item)) for name, item in value.items()}


def _write_one(field: Field) -> Convert:
    if field.message_type is None:
        return base64.b64decode if field.type == field.TYPE_BYTES else _same  # an enum may be given by name
    if _kind(field) == _TIMESTAMP:
        return timestamp_parts
    if filler := _FILLERS.get(_kind(field)):
        return _filled(message_class(field.message_type), filler)
    return shape(field.message_type).parts


def _filled(kind: Callable[[], Any], filler: Callable[[Any, Any], None]) -> Convert:
    def filled(value: Json) -> Any:
        message = kind()
        filler(message, value)
        return message

    return filled


# ------------------------------------------------------------------------------------------------------------- official


# Typed as Any: generated code, and a library that creates its classes at run time.
Descriptor: TypeAlias = Any
Field: TypeAlias = Any

messages_v1: Any = load("a2a.types.a2a_pb2")
messages_v03: Any = load("a2a.compat.v0_3.a2a_v0_3_pb2")
status_pb2: Any = load("google.rpc.status_pb2")
error_details_pb2: Any = load("google.rpc.error_details_pb2")
DecodeError: type[Exception] = load("google.protobuf.message").DecodeError
message_class: Callable[[Descriptor], Any] = load("google.protobuf.message_factory").GetMessageClass
