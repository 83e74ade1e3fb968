"""Encodes payloads as JSON that decodes to the same values.

Most payloads are plain JSON and stay so. Values that JSON would change or reject are marked by an object with the one
key ``"$keelbolt"``: NaN and infinities, integers of thousands of digits, keys that are not strings, tuples, sets,
bytes, dates, UUIDs and decimals. They decode to the original values.

All other values go through a fallback, and decoding returns the fallback's result: models and dataclasses become
dictionaries, enums their values, other objects their text (`describe`; a store can use another fallback).
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from operator import attrgetter
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from keelbolt.errors import InvalidState

MARK = "$keelbolt"
MAX_DEPTH = 200  # JSON parsers, Keelbolt's included, fail on much deeper values

Fallback = Callable[[Any], Any]

_MARKED = f'"{MARK}"'.encode()
_SCALARS = frozenset({str, int, float, bool, type(None)})
_KEYS = frozenset({str})
_plain = json.JSONEncoder(allow_nan=False, separators=(",", ":"), check_circular=False).encode


def describe(value: Any) -> Any:
    """Default fallback: convert models and dataclasses to dictionaries, other objects to their text."""
    if isinstance(value, BaseModel):
        return dump_fields(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dump_fields(value)
    return str(value)


def encode(value: Any, fallback: Fallback = describe) -> bytes:
    """Encode the value as JSON for `decode`."""
    try:
        if _is_json(value):
            data = to_json(value)  # twice as fast as json, which matters for every event of every flow
            if b"$" not in data and b"N" not in data and b"I" not in data:  # searching for one byte is fast
                return data
            if _MARKED not in data and b"NaN" not in data and b"Infinity" not in data:
                return data
    except (ValueError, RecursionError):  # not valid text, or too deep
        pass
    try:
        return _plain(_marked(value, fallback, 0)).encode()
    except RecursionError:
        raise InvalidState("a value is nested too deep or contains itself") from None


def decode(data: bytes) -> Any:
    """Decode the result of `encode`."""
    try:
        value = from_json(data)
    except ValueError:  # pydantic rejects lone surrogates and integers of thousands of digits
        value = json.loads(data, parse_int=_long)
    return _unmarked(value) if _MARKED in data else value


def canonical(value: Any, fallback: Fallback = describe) -> bytes:
    """Encode equal values as equal bytes, regardless of key order; the result can't be decoded."""
    value = ordered(value)
    try:
        return to_json(value)
    except (ValueError, RecursionError):
        return encode(value, fallback)


def ordered(value: Any) -> Any:
    """Return the value with sorted dictionary keys, so that equal values have equal encodings."""
    kind = type(value)
    if kind is dict:
        try:
            keys = sorted(value)
        except TypeError:  # keys that can't be compared
            return value
        return {
            key: item if type(item) in _SCALARS else ordered(item)
            for key, item in zip(keys, map(value.__getitem__, keys), strict=True)
        }
    return [item if type(item) in _SCALARS else ordered(item) for item in value] if kind is list else value


def dump_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass or model by name, including fields that only a newer class has."""
    if isinstance(value, BaseModel):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        return {**fields, **(value.model_extra or {})}
    names, values_of = _shapes.get(type(value)) or _shape(type(value))
    return dict(zip(names, values_of(value), strict=True))


_shapes: dict[type[Any], tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {}


def _shape(kind: type[Any]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the field names of a dataclass, and a function that reads all fields."""
    names = tuple(field.name for field in dataclasses.fields(kind))
    getter = attrgetter(*names)
    _shapes[kind] = names, getter if len(names) > 1 else lambda value: (getter(value),)
    return _shapes[kind]


def _long(digits: str) -> int:
    return int(digits) if len(digits) < 4000 else int(Decimal(digits))  # Python's limit is for untrusted input


def _is_json(value: Any) -> bool:
    """Return whether the value consists only of JSON types, without subclasses."""
    kind = type(value)
    if kind is dict:
        if not _KEYS.issuperset(map(type, value)):
            return False
        items = value.values()
    elif kind is list:
        items = value
    else:
        return kind in _SCALARS
    if not _SCALARS.issuperset(map(type, items)):
        for item in items:
            if type(item) not in _SCALARS and not _is_json(item):
                return False
    return True


# --------------------------------------------------------------------------------------------------------- marking


def _marked(value: Any, fallback: Fallback, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidState(f"a value is nested more than {MAX_DEPTH} levels deep or contains itself")
    if value is None or isinstance(value, bool):
        return value
    kind = _PLAIN.get(type(value))
    if kind is not None:
        return kind(value)
    if isinstance(value, Enum):
        return _marked(value.value, fallback, depth + 1)
    if isinstance(value, Mapping):
        return _mapping(value, fallback, depth)
    for tag, types in _CONTAINERS:
        if isinstance(value, types):
            return _mark(tag, [_marked(item, fallback, depth + 1) for item in value])
    if isinstance(value, list):
        return [_marked(item, fallback, depth + 1) for item in value]
    for base, convert in _PLAIN.items():  # a subclass of one of these
        if isinstance(value, base):
            return convert(value)
    return _marked(_described(value, fallback), fallback, depth + 1)


def _described(value: Any, fallback: Fallback) -> Any:
    try:
        return fallback(value)
    except Exception as error:
        raise InvalidState(f"a {type(value).__qualname__} can't be stored: {error!r}") from error


def _mapping(value: Mapping[Any, Any], fallback: Fallback, depth: int) -> Any:
    items = [(key, _marked(item, fallback, depth + 1)) for key, item in value.items()]
    if all(isinstance(key, str) and not isinstance(key, Enum) and _one_piece(key) for key, _ in items) and (
        MARK not in value
    ):
        return dict(items)
    return _mark("dict", [[_marked(key, fallback, depth + 1), item] for key, item in items])


def _text(value: str) -> Any:
    value = str(value)
    return value if _one_piece(value) else _mark("text", _base64(value.encode("utf-8", "surrogatepass")))


def _one_piece(text: str) -> bool:
    """Return whether JSON preserves the text: parsers join two adjacent surrogates into one character."""
    if text.isascii():
        return True
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass") == text


def _whole(value: int) -> Any:
    value = int(value)
    return value if value.bit_length() <= 10_000 else _mark("int", hex(value))  # Python does not print longer ones


def _real(value: float) -> Any:
    value = float(value)
    return value if math.isfinite(value) else _mark("float", repr(value))


def _mark(tag: str, value: Any) -> dict[str, Any]:
    return {MARK: [tag, value]}


def _base64(data: bytes | bytearray | memoryview) -> str:
    return base64.b64encode(data).decode()


_CONTAINERS: tuple[tuple[str, type[Any]], ...] = (("tuple", tuple), ("set", set), ("frozenset", frozenset))
_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: _text,
    int: _whole,
    float: _real,
    bytes: lambda value: _mark("bytes", _base64(value)),
    bytearray: lambda value: _mark("bytearray", _base64(value)),
    memoryview: lambda value: _mark("bytes", _base64(value)),
    datetime: lambda value: _mark("datetime", [value.isoformat(), value.fold]),
    date: lambda value: _mark("date", value.isoformat()),
    time: lambda value: _mark("time", [value.isoformat(), value.fold]),
    timedelta: lambda value: _mark("timedelta", [value.days, value.seconds, value.microseconds]),
    uuid.UUID: lambda value: _mark("uuid", value.hex),
    Decimal: lambda value: _mark("decimal", str(value)),
}


# -------------------------------------------------------------------------------------------------------- unmarking


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if not isinstance(value, dict):
        return value
    if MARK in value:
        tag, inner = value[MARK]
        return _BACK[tag](inner)
    return {key: _unmarked(item) for key, item in value.items()}


_BACK: dict[str, Callable[[Any], Any]] = {
    "dict": lambda inner: {_unmarked(key): _unmarked(item) for key, item in inner},
    "tuple": lambda inner: tuple(_unmarked(item) for item in inner),
    "set": lambda inner: {_unmarked(item) for item in inner},
    "frozenset": lambda inner: frozenset(_unmarked(item) for item in inner),
    "text": lambda inner: base64.b64decode(inner).decode("utf-8", "surrogatepass"),
    "int": lambda inner: int(inner, 16),
    "float": float,
    "bytes": base64.b64decode,
    "bytearray": lambda inner: bytearray(base64.b64decode(inner)),
    "datetime": lambda inner: datetime.fromisoformat(inner[0]).replace(fold=inner[1]),
    "date": date.fromisoformat,
    "time": lambda inner: time.fromisoformat(inner[0]).replace(fold=inner[1]),
    "timedelta": lambda inner: timedelta(*inner),
    "uuid": uuid.UUID,
    "decimal": Decimal,
}
