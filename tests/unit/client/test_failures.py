"""Every error of our server is restored by the client, from each of its four forms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt import errors
from keelbolt.client.failures import from_grpc, from_jsonrpc, from_rest, from_status
from keelbolt.errors import A2AClientError, FieldViolation, KeelboltError
from keelbolt.protocol.errors import describe, jsonrpc_v03, jsonrpc_v1, rest_v03, rest_v1

RAISED: list[KeelboltError] = [
    errors.TaskNotFoundError("t"),
    errors.TaskNotCancelableError("t"),
    errors.PushNotificationNotSupportedError(),
    errors.UnsupportedOperationError("not so"),
    errors.ContentTypeNotSupportedError(),
    errors.ExtendedCardNotConfiguredError(),
    errors.ExtensionSupportRequiredError(),
    errors.VersionNotSupportedError(),
    errors.InvalidParamsError(violations=[FieldViolation("message", "is required")]),
    errors.InvalidRequestError(),
    errors.MethodNotFoundError(),
    errors.ParseError(),
    errors.RateLimitedError(),
    errors.TooManyStreamsError(),
    errors.RequestTooLargeError(),
]
ONLY_WITH_REASONS = (errors.RateLimitedError, errors.TooManyStreamsError, errors.RequestTooLargeError)


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_errors_are_restored(error: KeelboltError) -> None:
    failure = describe(error)
    status = failure.row.http
    back = [
        from_jsonrpc(json.loads(jsonrpc_v1(failure)), status=200, headers={}, task_id="t"),
        from_rest(json.loads(rest_v1(failure)), status=status, headers={"retry-after": "7"}, task_id="t"),
    ]
    if not isinstance(error, ONLY_WITH_REASONS):  # 0.3 has no codes for these
        back += [
            from_jsonrpc(json.loads(jsonrpc_v03(failure)), status=200, headers={}, task_id="t"),
            from_rest(json.loads(rest_v03(failure)), status=status, headers={}, task_id="t"),
        ]
    for each in back:
        assert type(each) is type(error)
        assert str(each) == str(error)
        assert getattr(each, "task_id", None) == getattr(error, "task_id", None)
    if isinstance(error, errors.InvalidParamsError):
        assert getattr(back[0], "violations", None) == getattr(back[1], "violations", None) == error.violations
    if isinstance(error, errors.BusyError):
        assert getattr(back[1], "retry_after", None) == 7


def test_unknown_errors_are_server_errors() -> None:
    found = from_jsonrpc({"code": -32603, "message": "boom"}, status=200, headers={})
    assert isinstance(found, errors.A2AServerError)
    assert (found.code, found.status, str(found)) == (-32603, 200, "boom")
    assert isinstance(from_status(404, {}), errors.A2AResponseError)
    assert isinstance(from_status(503, {}), errors.A2AConnectionError)
    assert isinstance(from_status(429, {"retry-after": "x"}), errors.RateLimitedError)
    refused = from_status(401, {"www-authenticate": 'Bearer realm="a"'})
    assert isinstance(refused, errors.CredentialsRefused)
    assert refused.challenge == 'Bearer realm="a"'


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.CredentialsRefused),
        (403, errors.CredentialsRefused),
        (429, errors.RateLimitedError),
        (502, errors.A2AConnectionError),
        (503, errors.BusyError),
        (504, errors.A2AConnectionError),
        (500, errors.A2AServerError),
    ],
)
def test_the_status_takes_precedence_over_the_body(status: int, kind: type[KeelboltError]) -> None:
    """A gateway in front of an agent returns its own JSON, or a vague code."""
    headers = {"retry-after": "7"}
    bodies = [
        from_rest({"message": "no"}, status=status, headers=headers, url="https://a.example:8/x?y"),
        from_jsonrpc({"code": -32000, "message": "no"}, status=status, headers=headers, url="https://a.example:8/x"),
        from_jsonrpc("no", status=status, headers=headers, url="https://a.example:8/x"),
        from_status(status, headers, url="https://a.example:8/x"),
    ]
    for found in bodies:
        assert isinstance(found, kind)
        assert str(found).startswith("https://a.example:8: ") or not str(found).startswith("http")
        assert getattr(found, "retry_after", 7) == 7
    assert str(bodies[0]).startswith("https://a.example:8: ")


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"message": "Task not found"}, 404, errors.TaskNotFoundError),
        ({"message": "Task cannot be canceled"}, 409, errors.TaskNotCancelableError),
        ({"message": "no"}, 501, errors.UnsupportedOperationError),
        ({"detail": "Not Found"}, 404, errors.A2AResponseError),
        ({"detail": "Method Not Allowed"}, 405, errors.A2AResponseError),
        ({"detail": {"code": -32001, "message": "Task not found"}}, 404, errors.TaskNotFoundError),
        ({"detail": [{"loc": ["body", "message"], "msg": "Field required"}]}, 422, errors.InvalidParamsError),
    ],
)
def test_errors_of_0_3_servers_over_rest(body: Any, status: int, kind: type[KeelboltError]) -> None:
    """The official SDK returns a sentence and a status, FastAPI uses `detail`; a missing path is not a missing task."""
    found = from_rest(body, status=status, headers={}, task_id="t")
    assert type(found) is kind
    assert getattr(found, "task_id", "t") == "t"


@pytest.mark.parametrize(
    ("code", "words", "details", "kind"),
    [
        ("NOT_FOUND", "no", [{"reason": "TASK_NOT_FOUND", "metadata": {"taskId": "t"}}], errors.TaskNotFoundError),
        ("NOT_FOUND", "no", [], errors.TaskNotFoundError),
        ("FAILED_PRECONDITION", "TaskNotCancelableError: no", [], errors.TaskNotCancelableError),
        ("INVALID_ARGUMENT", "no", [], errors.InvalidParamsError),
        ("UNIMPLEMENTED", "", [], errors.MethodNotFoundError),
        ("UNAUTHENTICATED", "no", [], errors.CredentialsRefused),
        ("PERMISSION_DENIED", "no", [], errors.CredentialsRefused),
        ("RESOURCE_EXHAUSTED", "no", [], errors.RateLimitedError),
        ("RESOURCE_EXHAUSTED", "no", [{"reason": "REQUEST_TOO_LARGE"}], errors.RequestTooLargeError),
        ("UNAVAILABLE", "Socket closed", [], errors.A2AConnectionError),
        ("UNAVAILABLE", "no", [{"reason": "STOPPING"}], errors.StoppingError),
        ("INTERNAL", "no", [], errors.A2AServerError),
        ("UNKNOWN", "", [], errors.A2AServerError),
    ],
)
def test_statuses_of_grpc(code: str, words: str, details: list[Any], kind: type[KeelboltError]) -> None:
    found = from_grpc(code, words, details, headers={}, task_id="t", url="http://a:1")
    assert type(found) is kind
    assert str(found)


def test_a_failed_connection_sent_nothing() -> None:
    made = from_grpc("UNAVAILABLE", "Socket closed", [], headers={})
    never = from_grpc("UNAVAILABLE", "failed to connect to all addresses", [], headers={})
    assert [getattr(each, "sent", None) for each in (made, never)] == [True, False]


@pytest.mark.parametrize("metadata", ["x", ["x"], 5])
def test_metadata_that_is_no_object_is_ignored(metadata: Any) -> None:
    detail = {"reason": "TASK_NOT_FOUND", "metadata": metadata}
    found = from_jsonrpc({"code": -32001, "message": "", "data": [detail]}, status=200, headers={})
    assert type(found) is errors.TaskNotFoundError


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["code", "message", "data", "error", "details", "reason", "metadata", "fieldViolations", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.integers(100, 599))
def test_any_json_becomes_a_typed_error(value: Any, status: int) -> None:
    for found in (from_jsonrpc(value, status=status, headers={}), from_rest(value, status=status, headers={})):
        assert isinstance(found, KeelboltError)
        assert str(found)
        assert isinstance(found, A2AClientError) or type(found) in {type(error) for error in RAISED} | {
            errors.CredentialsRefused,
            errors.BusyError,
            errors.CredentialsMissing,
            errors.InvalidAgentResponseError,
        }
