"""The gRPC methods of both packages, with their operations, and the conversion of their messages to JSON and back."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from pydantic_core import from_json

from keelbolt.errors import ParseError
from keelbolt.protocol import v03_proto, v1
from keelbolt.protocol.codec import WireCodec
from keelbolt.protocol.limits import DEFAULT, Limits
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.protobuf.bounds import check_fields
from keelbolt.protocol.protobuf.official import DecodeError, Descriptor, message_class, messages_v03, messages_v1
from keelbolt.protocol.protobuf.shapes import shape
from keelbolt.protocol.types import Json
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
            message = self.answer.FromString(data)
        except DecodeError:
            raise ParseError(f"the response is not a valid {self.answer.DESCRIPTOR.full_name}") from None
        return self._read_answer(message)


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
