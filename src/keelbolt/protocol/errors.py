"""Maps exceptions to error responses: one table, and the bodies of the four formats.

`describe` looks up an exception by its class or nearest base class. An exception that is not in the table is an
internal error: its message goes only to the log, since it may contain SQL, paths or secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic_core import to_json

from keelbolt import errors
from keelbolt.errors import FieldViolation

DOMAIN = "a2a-protocol.org"
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
MAX_METADATA_CHARACTERS = 256


class ErrorRow(NamedTuple):
    """A row of the table. ``name`` is the error's name in 0.3."""

    code: int
    http: int
    grpc: str
    reason: str
    name: str


INTERNAL = ErrorRow(-32603, 500, "INTERNAL", "INTERNAL_ERROR", "InternalError")
UNAVAILABLE = ErrorRow(-32603, 503, "UNAVAILABLE", "UNAVAILABLE", "InternalError")
_PARAMS = ErrorRow(-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS", "InvalidParamsError")
_UNSUPPORTED = ErrorRow(-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION", "UnsupportedOperationError")

TABLE: Mapping[type, ErrorRow] = MappingProxyType(
    {
        errors.TaskNotFoundError: ErrorRow(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND", "TaskNotFoundError"),
        errors.TaskNotCancelableError: ErrorRow(
            -32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE", "TaskNotCancelableError"
        ),
        errors.PushNotificationNotSupportedError: ErrorRow(
            -32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED", "PushNotificationNotSupportedError"
        ),
        errors.UnsupportedOperationError: _UNSUPPORTED,
        errors.TaskTerminalStateError: _UNSUPPORTED,
        errors.TaskNotAcceptingMessagesError: _UNSUPPORTED,
        errors.ContentTypeNotSupportedError: ErrorRow(
            -32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED", "ContentTypeNotSupportedError"
        ),
        errors.InvalidAgentResponseError: ErrorRow(
            -32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE", "InvalidAgentResponseError"
        ),
        errors.ExtendedCardNotConfiguredError: ErrorRow(
            -32007,
            400,
            "FAILED_PRECONDITION",
            "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
            "AuthenticatedExtendedCardNotConfiguredError",
        ),
        errors.ExtensionSupportRequiredError: ErrorRow(
            -32008, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED", "ExtensionSupportRequiredError"
        ),
        errors.VersionNotSupportedError: ErrorRow(
            -32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED", "VersionNotSupportedError"
        ),
        errors.ParseError: ErrorRow(-32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR", "JSONParseError"),
        errors.InvalidRequestError: ErrorRow(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST", "InvalidRequestError"),
        errors.RequestTooLargeError: ErrorRow(
            -32600, 413, "RESOURCE_EXHAUSTED", "REQUEST_TOO_LARGE", "InvalidRequestError"
        ),
        errors.HeadersTooLargeError: ErrorRow(
            -32600, 431, "RESOURCE_EXHAUSTED", "HEADERS_TOO_LARGE", "InvalidRequestError"
        ),
        errors.RequestTimeoutError: ErrorRow(
            -32600, 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT", "InvalidRequestError"
        ),
        errors.MisdirectedRequestError: ErrorRow(
            -32600, 421, "FAILED_PRECONDITION", "MISDIRECTED_REQUEST", "InvalidRequestError"
        ),
        errors.ForeignOriginError: ErrorRow(-32600, 403, "PERMISSION_DENIED", "FOREIGN_ORIGIN", "InvalidRequestError"),
        errors.UnsupportedMediaTypeError: ErrorRow(
            -32005, 415, "INVALID_ARGUMENT", "UNSUPPORTED_MEDIA_TYPE", "ContentTypeNotSupportedError"
        ),
        errors.RateLimitedError: ErrorRow(-32603, 429, "RESOURCE_EXHAUSTED", "RATE_LIMITED", "InternalError"),
        errors.TooManyStreamsError: ErrorRow(-32603, 503, "UNAVAILABLE", "TOO_MANY_STREAMS", "InternalError"),
        errors.StoppingError: ErrorRow(-32603, 503, "UNAVAILABLE", "STOPPING", "InternalError"),
        errors.MethodNotFoundError: ErrorRow(-32601, 404, "NOT_FOUND", "METHOD_NOT_FOUND", "MethodNotFoundError"),
        errors.TenantNotFoundError: ErrorRow(-32600, 404, "NOT_FOUND", "TENANT_NOT_FOUND", "InvalidRequestError"),
        errors.SkillNotFoundError: ErrorRow(-32601, 404, "NOT_FOUND", "SKILL_NOT_FOUND", "ModuleNotFoundError"),
        errors.InvalidParamsError: _PARAMS,
        errors.SkillRequiredError: _PARAMS,
        errors.SkillInputError: _PARAMS,
        errors.InvalidTaskRequest: _PARAMS,
        errors.ContextMismatchError: _PARAMS,
        errors.IdempotencyKeyReused: ErrorRow(
            -32050, 409, "ALREADY_EXISTS", "IDEMPOTENCY_KEY_REUSED", "IdempotencyKeyReusedError"
        ),
        errors.CredentialsMissing: ErrorRow(-32600, 401, "UNAUTHENTICATED", "UNAUTHENTICATED", "InvalidRequestError"),
        errors.AuthenticationFailed: ErrorRow(-32600, 401, "UNAUTHENTICATED", "UNAUTHENTICATED", "InvalidRequestError"),
        errors.TaskGenerationMismatchError: ErrorRow(
            -32010, 409, "ABORTED", "TASK_GENERATION_MISMATCH", "TaskGenerationMismatchError"
        ),
        errors.ConcurrencyError: ErrorRow(-32603, 409, "ABORTED", "ABORTED", "InternalError"),
    }
)
"""Errors whose messages are written for the caller and returned to it."""

QUIET: Mapping[type, ErrorRow] = MappingProxyType(
    {errors.AuthUnavailable: UNAVAILABLE, errors.StorageUnavailable: UNAVAILABLE}
)
"""Errors with their own status whose messages are only for the operator."""

_INTERNAL_MESSAGE = "Internal error. It was logged; the request can be repeated with the same Idempotency-Key."
_UNAVAILABLE_MESSAGE = "The agent is temporarily unavailable; try again later."


@dataclass(frozen=True, slots=True)
class WireFailure:
    """The description of an error for the caller."""

    row: ErrorRow
    message: str
    metadata: dict[str, str]
    violations: tuple[FieldViolation, ...] = ()
    data: Mapping[str, Any] | None = None

    @property
    def details(self) -> list[dict[str, Any]]:
        """The details of 1.0: an ErrorInfo, and the field violations, if any."""
        found: list[dict[str, Any]] = [
            {"@type": ERROR_INFO, "reason": self.row.reason, "domain": DOMAIN, "metadata": self.metadata}
        ]
        if self.violations:
            wrong = [{"field": item.field, "description": item.description} for item in self.violations]
            found.append({"@type": BAD_REQUEST, "fieldViolations": wrong})
        return found


def describe(error: BaseException) -> WireFailure:
    """Return the failure of any exception, without information that the caller must not see."""
    for kind in type(error).__mro__:
        if row := TABLE.get(kind):
            return WireFailure(row, str(error), _metadata(error), getattr(error, "violations", ()), _data(error))
        if row := QUIET.get(kind):
            return WireFailure(row, _UNAVAILABLE_MESSAGE, {})
    return WireFailure(INTERNAL, _INTERNAL_MESSAGE, {})


def _metadata(error: BaseException) -> dict[str, str]:
    task_id = getattr(error, "task_id", None)
    found = {"taskId": task_id[:MAX_METADATA_CHARACTERS]} if isinstance(task_id, str) and task_id else {}
    if (data := _data(error)) is not None:
        found["type"] = data["type"]
    if isinstance(error, errors.TaskGenerationMismatchError) and getattr(error, "expected", None) is not None:
        found |= {"expectedGeneration": str(error.expected), "currentGeneration": str(error.found)}
    return found


def _data(error: BaseException) -> Mapping[str, Any] | None:
    """Return the error's ``data`` for programs if it has a ``type``; ``data`` of other errors is unrelated."""
    data = getattr(error, "data", None)
    return data if isinstance(data, Mapping) and isinstance(data.get("type"), str) else None


def jsonrpc_v1(failure: WireFailure) -> bytes:
    """Return the JSON-RPC error object of 1.0: `data` is an array of typed details."""
    return to_json({"code": failure.row.code, "message": failure.message, "data": failure.details})


def jsonrpc_v03(failure: WireFailure) -> bytes:
    """Return the JSON-RPC error object of 0.3: `data` is free-form, and has the type of the error."""
    data = {"type": failure.row.name, **(failure.data or {})}
    return to_json({"code": failure.row.code, "message": failure.message, "data": data})


def rest_v1(failure: WireFailure) -> bytes:
    """Return the body of an HTTP error in 1.0: google.rpc.Status."""
    row = failure.row
    return to_json(
        {"error": {"code": row.http, "status": row.grpc, "message": failure.message, "details": failure.details}}
    )


def rest_v03(failure: WireFailure) -> bytes:
    """Return the body of an HTTP error, which 0.3 does not define: the error's name, JSON-RPC code and message."""
    return to_json({"error": failure.row.name, "code": failure.row.code, "message": failure.message})
