"""Size checks on the bytes of a protobuf message, before it is parsed.

An empty submessage takes two bytes on the wire and a hundred in memory, so the fields are counted first.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from keelbolt.errors import ParseError, RequestTooLargeError
from keelbolt.protocol.limits import Limits
from keelbolt.protocol.protobuf.official import Descriptor
from keelbolt.protocol.protobuf.varints import read_varint

_DEEPEST = 100  # nested messages; protobuf itself allows no more
_STRUCTS = frozenset({"google.protobuf.Struct", "google.protobuf.ListValue"})


class _Field(NamedTuple):
    name: str
    message: Descriptor | None
    limited: bool  # whether a message may have at most ``limits.items`` of it


@cache
def _fields(descriptor: Descriptor) -> dict[int, _Field]:
    free = descriptor.full_name in _STRUCTS  # free-form JSON: only the total is limited
    return {field.number: _Field(field.json_name, field.message_type, not free) for field in descriptor.fields}


def check_fields(data: bytes, descriptor: Descriptor, limits: Limits) -> None:
    """Raise RequestTooLargeError if the message has too many fields in total, or too many of one repeated field.

    Raise ParseError for bytes that are no A2A message, or that contain groups, which A2A does not use.
    """
    try:
        _Walk(data, limits).message(0, len(data), descriptor, 0)
    except IndexError:
        raise ParseError(f"the request is not a valid {descriptor.full_name}") from None


class _Walk:
    def __init__(self, data: bytes, limits: Limits) -> None:
        self._data = data
        self._limits = limits
        self._total = 0

    def message(self, at: int, end: int, descriptor: Descriptor, depth: int, most: int | None = None) -> None:
        """Count the fields between two positions; ``most`` limits the entries of a Struct."""
        fields, counts = _fields(descriptor), dict[int, int]()
        while at < end:
            tag, at = read_varint(self._data, at)
            number, kind = tag >> 3, tag & 7
            self._count(counts, number, fields.get(number), most)
            match kind:
                case 0:
                    _, at = read_varint(self._data, at)
                case 1:
                    at += 8
                case 2:
                    size, at = read_varint(self._data, at)
                    field = fields.get(number)
                    if at + size > end or depth == _DEEPEST:
                        raise IndexError
                    if field is not None and field.message is not None:
                        inner = self._limits.items if field.name == "metadata" else None
                        self.message(at, at + size, field.message, depth + 1, inner)
                    at += size
                case 5:
                    at += 4
                case _:
                    raise IndexError

    def _count(self, counts: dict[int, int], number: int, field: _Field | None, most: int | None) -> None:
        self._total += 1
        if self._total > self._limits.values:
            raise RequestTooLargeError(f"the request has more than {self._limits.values} fields")
        count = counts[number] = counts.get(number, 0) + 1
        if most is None and field is not None and field.limited:
            most = self._limits.items
        if most is not None and count > most:
            name = field.name if field is not None else f"field {number}"
            raise RequestTooLargeError(f"{name} has more than {most} items")
