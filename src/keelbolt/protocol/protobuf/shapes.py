"""Converts messages to JSON values and back: ProtoJSON, with tables built once from the descriptors.

`google.protobuf.json_format` does the same, but is thirty times slower; the tests compare the two. The input of writing
is our own codecs' output: a member that a message does not have is omitted.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

from keelbolt.protocol.protobuf.official import Descriptor, Field, message_class
from keelbolt.protocol.protobuf.structs import (
    fill_list,
    fill_struct,
    fill_value,
    read_list,
    read_struct,
    read_timestamp,
    read_value,
    timestamp_parts,
)
from keelbolt.protocol.types import Json

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
