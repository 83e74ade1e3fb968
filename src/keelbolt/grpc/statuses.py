"""Failures as gRPC statuses: a code, a message, and google.rpc.Status with its details in the trailing metadata."""

from __future__ import annotations

from typing import Any, NoReturn

from keelbolt.grpc.library import grpc
from keelbolt.grpc.metadata import pairs
from keelbolt.protocol.errors import DOMAIN, WireFailure
from keelbolt.protocol.protobuf.official import error_details_pb2, status_pb2
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server.failures import explain, failure_headers

DETAILS = "grpc-status-details-bin"
MAX_MESSAGE_CHARACTERS = 1000
MAX_DETAILS_BYTES = 4096  # clients accept 8 kB of metadata and drop a response with more

# HTTP uses 404 for this as well; gRPC has its own status for an unknown method.
_CODES = {"METHOD_NOT_FOUND": "UNIMPLEMENTED"}


async def fail(context: Any, error: Exception, version: ProtocolVersion = ProtocolVersion.v1_0) -> NoReturn:
    """End a call with this error. Always raises. For 0.3, the error's name precedes the message."""
    failure = explain(error)
    message = failure.message if version is ProtocolVersion.v1_0 else f"{failure.row.name}: {failure.message}"
    message = message[:MAX_MESSAGE_CHARACTERS]
    code = grpc.StatusCode[_CODES.get(failure.row.reason, failure.row.grpc)]
    trailing = ((DETAILS, details(failure, code.value[0], message)), *pairs(failure_headers(error)))
    await context.abort(code, message, trailing)
    raise AssertionError("abort raises")


def details(failure: WireFailure, code: int, message: str) -> bytes:
    """Return the bytes of google.rpc.Status: an ErrorInfo, and as many field violations as fit."""
    status = status_pb2.Status(code=code, message=message)
    info = error_details_pb2.ErrorInfo(reason=failure.row.reason, domain=DOMAIN, metadata=failure.metadata)
    status.details.add().Pack(info)
    if failure.violations:
        wrong = [{"field": item.field, "description": item.description} for item in failure.violations]
        request = error_details_pb2.BadRequest(field_violations=wrong)
        while request.ByteSize() > MAX_DETAILS_BYTES:
            del request.field_violations[-1]
        status.details.add().Pack(request)
    data: bytes = status.SerializeToString()
    return data
