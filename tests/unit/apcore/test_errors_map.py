"""apcore's errors become errors for the caller, without details that belong in the log."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from typing import Any

import apcore
import pytest
from apcore import errors
from apcore.approval import ApprovalResult
from apcore.cancel import ExecutionCancelledError
from apcore.errors import ErrorCodes, ModuleError
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.apcore.errors_map import (
    _ADDRESSES,
    _SECRETS,
    ERROR_MAP,
    ErrorMapper,
    loggable,
    sanitized,
    validation_errors,
)

SECRET = "/srv/app/config/secrets.yaml"
WHY = f"failed in {SECRET} with password=hunter2"
RESULT = ApprovalResult(status="rejected", reason="too late in the day")

TABLE: list[tuple[Exception, int, str, str]] = [
    (errors.ModuleNotFoundError("image.resize"), -32601, "Skill not found: image.resize", "ModuleNotFoundError"),
    (errors.SchemaValidationError("Input validation failed"), -32602, "Invalid params", "SchemaValidationError"),
    (errors.SchemaValidationError("Output validation failed: []"), -32603, "Internal error", "SchemaValidationError"),
    (errors.ACLDeniedError("eve", "image.resize"), -32001, "Task not found", "TaskNotFoundError"),
    (errors.ModuleExecuteError("image.resize", WHY), -32603, "Internal error", "ModuleExecuteError"),
    (errors.ModuleTimeoutError("image.resize", 30_000), -32603, "Execution timed out", "ModuleTimeoutError"),
    (errors.InvalidInputError("no width"), -32602, "Invalid input: no width", "InvalidInputError"),
    (errors.CallDepthExceededError(9, 8, ["a", "b"]), -32603, "Safety limit exceeded", "CallDepthExceededError"),
    (errors.CircularCallError("a", ["a", "b", "a"]), -32603, "Safety limit exceeded", "CircularCallError"),
    (
        errors.CallFrequencyExceededError("a", 4, 3, ["a"]),
        -32603,
        "Safety limit exceeded",
        "CallFrequencyExceededError",
    ),
    (errors.ModuleDisabledError("image.resize"), -32601, "Skill not found: image.resize", "ModuleNotFoundError"),
    (
        errors.ApprovalDeniedError(RESULT, "deploy"),
        -32603,
        "Approval denied: too late in the day",
        "ApprovalDeniedError",
    ),
    (errors.ApprovalTimeoutError(RESULT, "deploy"), -32603, "The approval expired", "ApprovalTimeoutError"),
    (ExecutionCancelledError(), -32603, "Canceled", "ExecutionCancelledError"),
    (errors.InternalError(WHY), -32603, "Internal error", "InternalError"),
    (RuntimeError(WHY), -32603, "Internal error", "InternalError"),
]


@pytest.mark.parametrize(("error", "code", "message", "kind"), TABLE, ids=lambda value: type(value).__name__)
def test_the_table(error: Exception, code: int, message: str, kind: str) -> None:
    found = ErrorMapper().to_jsonrpc_error(error)
    assert (found["code"], found["message"], found["data"]["type"]) == (code, message, kind)


def classes() -> list[type[ModuleError]]:
    """Return every error class of apcore, from all of its modules."""
    for module in pkgutil.walk_packages(apcore.__path__, "apcore."):
        if ".__main__" not in module.name:
            importlib.import_module(module.name)
    found, left = set[Any](), [ModuleError]
    while left:
        kind = left.pop()
        if kind not in found and kind.__module__.startswith("apcore"):
            found.add(kind)
            left += kind.__subclasses__()
    return sorted(found, key=lambda kind: kind.__name__)


def made(kind: Any) -> Any:
    """Return an error of this class whose message and details must stay in the log."""
    error = kind.__new__(kind)
    codes = [value for name, value in vars(ErrorCodes).items() if name.isupper()]
    ModuleError.__init__(error, code=codes[0], message=WHY, details={"path": SECRET, "errors": [{"message": WHY}]})
    try:
        arguments = {
            name: _argument(name)
            for name, about in list(inspect.signature(kind).parameters.items())
            if about.kind in (about.POSITIONAL_OR_KEYWORD, about.KEYWORD_ONLY) and about.default is about.empty
        }
        return kind(**arguments)
    except Exception:
        return error


def _argument(name: str) -> Any:
    if name in ("message", "reason", "detail", "path", "config_path", "file_path", "explanation"):
        return WHY
    numbers = ("timeout_ms", "depth", "max_depth", "count", "max_repeat", "current", "limit", "max_length", "length")
    if name in numbers:
        return 3
    if name in ("call_chain", "cycle", "errors", "missing", "missing_fields", "available"):
        return ["a", "b"]
    return RESULT if name == "result" else RuntimeError(WHY) if name in ("cause", "original") else SECRET


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_no_apcore_error_leaks_details(kind: type[ModuleError]) -> None:
    error = made(kind)
    found = ErrorMapper().to_jsonrpc_error(error)
    assert found["code"] in (-32001, -32601, -32602, -32603)
    assert found["data"]["type"]
    text = repr(found)
    for word in ("/srv", "secrets.yaml", "hunter2", "Traceback"):
        assert word not in text, (error.code, text)
    assert len(found["message"]) <= 500


def test_error_classes_are_found() -> None:
    assert len(classes()) > 60


def test_every_code_of_the_table_exists_in_apcore() -> None:
    codes = {value for name, value in vars(ErrorCodes).items() if name.isupper()}
    assert set(ERROR_MAP) - codes <= {"INVALID_INPUT", "EXECUTION_CANCELLED"}


def test_own_error_codes_of_modules_have_no_details() -> None:
    class SecretProjectError(ModuleError):  # type: ignore[misc]
        pass

    found = ErrorMapper().to_jsonrpc_error(SecretProjectError(code="OUT_OF_STOCK", message=WHY))
    data = {"type": "ModuleError", "code": "OUT_OF_STOCK"}
    assert found == {"code": -32603, "message": "Internal error", "data": data}


def test_json_pointers_survive() -> None:
    wrong = [{"path": "/numbers/0", "keyword": "type", "message": f"Input should be an integer {SECRET}"}]
    error = errors.SchemaValidationError("Input validation failed", errors=wrong)
    [found] = ErrorMapper().to_jsonrpc_error(error)["data"]["errors"]
    assert found == {"path": "/numbers/0", "keyword": "type", "message": "Input should be an integer [path]"}
    assert validation_errors({"errors": [{"path": "/a~1b/c"}]})[0]["path"] == "/a~1b/c"


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("can't open /etc/app/config.yaml now", "can't open [path] now"),
        (r"can't open C:\Users\me\key.pem", "can't open [path]"),
        ("see ~/secrets/key", "see [path]"),
        ('Traceback (most recent call last):\n  File "/a/b.py", line 3, in f\nValueError: no', "ValueError: no"),
        ("The CSV is malformed at line 3: expected 4 fields", "The CSV is malformed at line 3: expected 4 fields"),
        ("born 2026/01/02, or 01/02/2026", "born 2026/01/02, or 01/02/2026"),
        ("see https://example.com/home/docs/a.html#x", "see https://example.com/home/docs/a.html#x"),
        ("GET /v1/users/3 failed at /rows/0/name", "GET /v1/users/3 failed at /rows/0/name"),
        ("can't open '/home/me/x.csv': no", "can't open '[path]': no"),
        ("can't open (/tmp/a/b.csv)", "can't open ([path])"),
        ("file:///etc/passwd is closed", "[path] is closed"),
        ("{'password': 'hunter two', 'x': 1}", "{'password=…, 'x': 1}"),
        ("unexpected token: '}' at line 3", "unexpected token: '}' at line 3"),
        ("token: eyJhbGciOi1 is wrong", "token=… is wrong"),
        ("it failed: Traceback (most recent call last):\nfine", "it failed: fine"),
        ("postgres://bob:pw@db/x is down", "postgres://db/x is down"),
        ("api_key=abc123 is wrong", "api_key=… is wrong"),
        ("bell\x07 and \x1b[31mred", "bell and [31mred"),
        ("a/b is one half, and 3/4 is more", "a/b is one half, and 3/4 is more"),
        ("x" * 900, "x" * 500),
    ],
)
def test_messages_are_sanitized(message: str, wanted: str) -> None:
    assert sanitized(message) == wanted


@given(st.text(max_size=3000))
def test_sanitizing_never_raises_and_is_bounded(message: str) -> None:
    found = sanitized(message)
    assert len(found) <= 500
    assert not any(ord(character) < 32 and character not in "\t\n" for character in found)


def test_logged_texts_are_cut_and_sanitized() -> None:
    assert loggable("a\x00b\x1b[0m\tc\n" + "d" * 2000) == ("ab[0m\tc\n" + "d" * 2000)[:1000]


@pytest.mark.parametrize(("pattern", "then"), [(_ADDRESSES, "://"), (_SECRETS, "[=:]"), (_SECRETS, "(?:=|:")])
def test_the_search_does_not_grow_with_the_square_of_the_length(pattern: re.Pattern[str], then: str) -> None:
    """Before the text that decides, no repetition is unbounded: it would be tried again from every position."""
    before = pattern.pattern.partition(then)[0].rpartition("|(")[2]
    assert not re.search(r"(\]|\\w|\\s)[*+]", before)


@pytest.mark.parametrize("text", ["db_password_2=hunter2", "MY_API_KEY : 'hunter2'", "access_token=hunter2"])
def test_names_around_the_word_are_masked_too(text: str) -> None:
    assert "hunter2" not in sanitized(text)
    assert "hunter2" not in sanitized(f"{'x' * 5000}_{text}")
    assert "hunter2" not in sanitized(f"{'x' * 5000}{'a' * 60}://user:hunter2@host/")
