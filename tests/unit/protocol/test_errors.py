"""Error responses: the table of the specification, and no leaks."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from typing import Any

import pytest

from keelbolt import errors
from keelbolt.errors import FieldViolation, InvalidParamsError, KeelboltError, TaskNotFoundError
from keelbolt.protocol import jsonrpc
from keelbolt.protocol.errors import (
    INTERNAL,
    QUIET,
    TABLE,
    describe,
    jsonrpc_v03,
    jsonrpc_v1,
    rest_v03,
    rest_v1,
)

SPECIFIED = """
TaskNotFoundError                  -32001  NOT_FOUND            404  TASK_NOT_FOUND
TaskNotCancelableError             -32002  FAILED_PRECONDITION  400  TASK_NOT_CANCELABLE
PushNotificationNotSupportedError  -32003  FAILED_PRECONDITION  400  PUSH_NOTIFICATION_NOT_SUPPORTED
UnsupportedOperationError          -32004  FAILED_PRECONDITION  400  UNSUPPORTED_OPERATION
ContentTypeNotSupportedError       -32005  INVALID_ARGUMENT     400  CONTENT_TYPE_NOT_SUPPORTED
InvalidAgentResponseError          -32006  INTERNAL             500  INVALID_AGENT_RESPONSE
ExtendedCardNotConfiguredError     -32007  FAILED_PRECONDITION  400  EXTENDED_AGENT_CARD_NOT_CONFIGURED
ExtensionSupportRequiredError      -32008  FAILED_PRECONDITION  400  EXTENSION_SUPPORT_REQUIRED
VersionNotSupportedError           -32009  FAILED_PRECONDITION  400  VERSION_NOT_SUPPORTED
InvalidParamsError                 -32602  INVALID_ARGUMENT     400  INVALID_PARAMS
InvalidRequestError                -32600  INVALID_ARGUMENT     400  INVALID_REQUEST
MethodNotFoundError                -32601  NOT_FOUND            404  METHOD_NOT_FOUND
"""


@pytest.mark.parametrize("line", SPECIFIED.strip().splitlines())
def test_the_table_of_the_specification(line: str) -> None:
    name, code, grpc, http, reason = line.split()
    row = TABLE[getattr(errors, name)]
    assert (row.code, row.grpc, row.http, row.reason) == (int(code), grpc, int(http), reason)


def test_the_official_sdk_has_the_same_table() -> None:
    sdk: Any = import_module("a2a.utils.errors")
    official = {
        mapping.reason: (sdk.JSON_RPC_ERROR_CODE_MAP[kind], mapping.http_code, mapping.grpc_status)
        for kind, mapping in sdk.A2A_ERROR_MAPPING.items()
    }
    ours = {row.reason: (row.code, row.http, row.grpc) for row in (*TABLE.values(), INTERNAL)}
    assert {reason: ours[reason] for reason in official} == official


def test_parse_errors_have_their_code() -> None:
    assert describe(errors.ParseError()).row.code == -32700


PROTOCOL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.ProtocolError)]


@pytest.mark.parametrize("kind", PROTOCOL)
def test_every_error_of_the_protocol_is_in_the_table(kind: type[KeelboltError]) -> None:
    """Base classes are never raised, and an untrusted card is an error of the client only."""
    assert kind in TABLE or kind.__subclasses__() or kind is errors.CardSignatureError


SECRET = "SELECT password FROM /etc/passwd"


@pytest.mark.parametrize(
    ("error", "http"),
    [
        (RuntimeError(SECRET), 500),
        (KeyError(SECRET), 500),
        (KeyboardInterrupt(SECRET), 500),
        (KeelboltError(SECRET), 500),
        (errors.StorageError(SECRET), 500),
        (errors.InvalidValue(SECRET), 500),
        (errors.StorageCorrupt(SECRET), 500),
        (errors.StorageBusy(SECRET), 503),
        (errors.StorageUnreachable(SECRET), 503),
        (errors.StorageBroken(SECRET), 503),
        (errors.AuthUnavailable(SECRET), 503),
        (errors.StepFailed(SECRET), 500),
        (errors.MissingExtra(SECRET, SECRET), 500),
    ],
)
def test_nothing_leaks(error: BaseException, http: int) -> None:
    failure = describe(error)
    assert failure.row.http == http
    assert failure.row.code == -32603
    for body in (jsonrpc_v1, jsonrpc_v03, rest_v1, rest_v03):
        assert b"SELECT" not in body(failure)
        assert b"passwd" not in body(failure)


def test_the_nearest_base_class_counts() -> None:
    assert describe(errors.IllegalTransition("a", "b")).row.reason == "UNSUPPORTED_OPERATION"
    assert describe(errors.TaskTerminalStateError("t")).row.reason == "UNSUPPORTED_OPERATION"
    assert describe(errors.TaskNotAcceptingMessagesError("t")).row.reason == "UNSUPPORTED_OPERATION"
    assert describe(errors.MessageReused()).row.reason == "INVALID_PARAMS"
    assert describe(errors.ContextMismatchError("t", "c")).row.reason == "INVALID_PARAMS"
    assert describe(errors.RequestTooLargeError()).row.http == 413
    assert describe(errors.CredentialsRefused()).row.http == 401
    assert describe(errors.ConcurrencyError("t", expected=1, found=2)).row.http == 409
    assert all(row.http == 503 for row in QUIET.values())


@pytest.mark.parametrize("data", ["words", {"secret": 1}, {"type": 1}, [1], None])
def test_data_of_foreign_errors_is_not_returned(data: object) -> None:
    """An agent's own errors may derive from ours and contain any data."""
    error = InvalidParamsError("no")
    error.data = data  # type: ignore[attr-defined]
    failure = describe(error)
    assert json.loads(jsonrpc_v03(failure))["data"] == {"type": failure.row.name}
    assert failure.metadata == {}


def test_the_bodies() -> None:
    failure = describe(TaskNotFoundError("t-1"))
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "TASK_NOT_FOUND",
        "domain": "a2a-protocol.org",
        "metadata": {"taskId": "t-1"},
    }
    words = "Task not found: there is no such task."
    assert json.loads(jsonrpc_v1(failure)) == {"code": -32001, "message": words, "data": [info]}
    kind = {"type": "TaskNotFoundError"}
    assert json.loads(jsonrpc_v03(failure)) == {"code": -32001, "message": words, "data": kind}
    assert json.loads(rest_v1(failure)) == {
        "error": {"code": 404, "status": "NOT_FOUND", "message": words, "details": [info]}
    }
    assert json.loads(rest_v03(failure)) == {"error": "TaskNotFoundError", "code": -32001, "message": words}
    assert json.loads(jsonrpc.error(b"1", jsonrpc_v03(failure)))["error"]["code"] == -32001


def test_wrong_fields_are_a_bad_request() -> None:
    failure = describe(
        InvalidParamsError(violations=[FieldViolation("message.parts", "at least one part is required")])
    )
    assert failure.message == "message.parts: at least one part is required"
    assert json.loads(jsonrpc_v1(failure))["data"][1] == {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message.parts", "description": "at least one part is required"}],
    }


def test_the_official_protobuf_reads_the_details() -> None:
    details: Any = import_module("google.rpc.error_details_pb2")
    json_format: Any = import_module("google.protobuf.json_format")
    failure = describe(InvalidParamsError(violations=[FieldViolation("a", "b")]))
    for detail, message in zip(failure.details, (details.ErrorInfo(), details.BadRequest()), strict=True):
        assert detail.pop("@type").endswith(message.DESCRIPTOR.full_name)
        json_format.ParseDict(detail, message, ignore_unknown_fields=False)
