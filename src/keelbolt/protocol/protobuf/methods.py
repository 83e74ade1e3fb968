"""The gRPC methods of both packages: operations, size checks on messages, and conversion to JSON and back.

An empty submessage takes two bytes on the wire and a hundred in memory, so the fields are counted before a message is
parsed.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic_core import from_json

from keelbolt.errors import InvalidParamsError, ParseError, RequestTooLargeError
from keelbolt.protocol import v03_proto, v1
from keelbolt.protocol.codec import WireCodec
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.protobuf.numbers import read_varint
from keelbolt.protocol.protobuf.shapes import DecodeError, Descriptor, message_class, messages_v03, messages_v1, shape
from keelbolt.protocol.types import Json
from keelbolt.protocol.validation import DEFAULT, Limits
from keelbolt.protocol.versions import ProtocolVersion

SERVICE_V1 = "lf.a2a.v1.A2AService"
SERVICE_V03 = "a2a.v1.A2AService"

_NAMES_V03 = {
    "TaskSubscription": Operation.subscribe_to_task,
    "ListTaskPushNotificationConfig": Operation.list_push_configs,
    "GetAgentCard": Operation.get_extended_card,
}
"""Names that differ in 0.3."""


class Method:
    """A method of a service."""

    def __init__(self, descriptor: Descriptor, operation: Operation, version: ProtocolVersion) -> None:
        self.name: str = descriptor.name
        self.path = f"/{descriptor.containing_service.full_name}/{descriptor.name}"
        self.operation = operation
        self.version = version
        self.codec: WireCodec = v1 if version is ProtocolVersion.v1_0 else v03_proto
        self.request: Any = message_class(descriptor.input_type)
        self.answer: Any = message_class(descriptor.output_type)
        self._read_request = shape(descriptor.input_type).read
        self._read_answer = shape(descriptor.output_type).read
        self._request_parts = shape(descriptor.input_type).parts
        self._answer_parts = shape(descriptor.output_type).parts

    # Server side

    def read_request(self, data: bytes, *, limits: Limits = DEFAULT) -> dict[str, Json]:
        """Return the request as JSON, for the codec.

        Raise RequestTooLargeError, ParseError, or InvalidParamsError for a value that JSON can't represent.
        """
        check_fields(data, self.request.DESCRIPTOR, limits)
        try:
            message = self.request.FromString(data)
        except DecodeError:
            raise ParseError(f"the request is not a valid {self.request.DESCRIPTOR.full_name}") from None
        return self._read_request(message)

    def write_answer(self, json: bytes) -> bytes:
        """Return a codec's response as protobuf bytes."""
        data: bytes = self.answer(**self._answer_parts(from_json(json))).SerializeToString()
        return data

    # Client side

    def write_request(self, json: bytes) -> bytes:
        """Return a codec's request as protobuf bytes."""
        data: bytes = self.request(**self._request_parts(from_json(json))).SerializeToString()
        return data

    def read_answer(self, data: bytes) -> dict[str, Json]:
        """Return the response as JSON, for the codec. Raise ParseError."""
        try:
            return self._read_answer(self.answer.FromString(data))
        except (DecodeError, InvalidParamsError):  # InvalidParamsError: a value that JSON can't represent
            raise ParseError(f"the response is not a valid {self.answer.DESCRIPTOR.full_name}") from None


def _methods(file: Any, version: ProtocolVersion) -> MappingProxyType[str, Method]:
    service = file.DESCRIPTOR.services_by_name["A2AService"]
    names = _NAMES_V03 if version is ProtocolVersion.v0_3 else {}
    return MappingProxyType(
        {
            method.name: Method(method, names.get(method.name) or Operation(method.name), version)
            for method in service.methods
        }
    )


METHODS_V1 = _methods(messages_v1, ProtocolVersion.v1_0)
METHODS_V03 = _methods(messages_v03, ProtocolVersion.v0_3)


# --------------------------------------------------------------------------------------------------------------- bounds


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
