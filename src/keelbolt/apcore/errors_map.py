"""How a failure inside a module is told: apcore's exceptions as errors of JSON-RPC, cleaned; the rest is in the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from keelbolt.apcore.library import ModuleError

logger = logging.getLogger("keelbolt.apcore")

MAX_MESSAGE_CHARACTERS = 500
MAX_LOGGED_CHARACTERS = 1000
MAX_ERRORS = 20

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL = -32603
TASK_NOT_FOUND = -32001


class Row(NamedTuple):
    """A line of the table. ``message`` None: the error's own words, cleaned. ``kind`` None: the name of its class."""

    code: int
    message: str | None
    kind: str | None = None


_SAFETY = Row(INTERNAL, "Safety limit exceeded")
_INPUT = Row(INVALID_PARAMS, None)
_SCHEMA = Row(INVALID_PARAMS, "Invalid params", "SchemaValidationError")
_UNKNOWN = Row(INTERNAL, "Internal error")

ERROR_MAP: Mapping[str, Row] = MappingProxyType(
    {
        "MODULE_NOT_FOUND": Row(METHOD_NOT_FOUND, "Skill not found: {module_id}", "ModuleNotFoundError"),
        "SCHEMA_VALIDATION_ERROR": _SCHEMA,
        "SCHEMA_VALIDATION_FAILED": _SCHEMA,
        "ACL_DENIED": Row(TASK_NOT_FOUND, "Task not found", "TaskNotFoundError"),
        "MODULE_EXECUTE_ERROR": Row(INTERNAL, "Internal error", "ModuleExecuteError"),
        "MODULE_TIMEOUT": Row(INTERNAL, "Execution timed out", "ModuleTimeoutError"),
        "INVALID_INPUT": _INPUT,  # the name that some documents have for the next one
        "GENERAL_INVALID_INPUT": _INPUT,
        "INVALID_MODULE_ID": _INPUT,
        "CALL_DEPTH_EXCEEDED": _SAFETY,
        "CIRCULAR_CALL": _SAFETY,
        "CALL_FREQUENCY_EXCEEDED": _SAFETY,
        "MODULE_DISABLED": Row(METHOD_NOT_FOUND, "Skill not found: {module_id}", "ModuleNotFoundError"),
        "APPROVAL_DENIED": Row(INTERNAL, None, "ApprovalDeniedError"),
        "APPROVAL_TIMEOUT": Row(INTERNAL, "The approval expired", "ApprovalTimeoutError"),
        "EXECUTION_CANCELLED": Row(INTERNAL, "Canceled", "ExecutionCancelledError"),
        "CIRCUIT_OPEN": Row(INTERNAL, "Temporarily unavailable; try again later"),
        "CIRCUIT_BREAKER_OPEN": Row(INTERNAL, "Temporarily unavailable; try again later"),
        "TASK_LIMIT_EXCEEDED": Row(INTERNAL, "Temporarily unavailable; try again later"),
    }
)
"""By the code of the error. Whatever is not here is an internal error, of which nothing is told but the name."""

_HIDDEN = frozenset({"ACL_DENIED", "MODULE_NOT_FOUND", "MODULE_DISABLED"})
_OF_THE_MODULE = ("Output", "Streaming chunk")  # how apcore begins what it says about a module, not about its caller


@dataclass(frozen=True, slots=True)
class MappedError:
    """What the caller is told."""

    code: int
    message: str
    data: dict[str, Any]

    def json(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "data": self.data}


class ErrorMapper:
    """Maps whatever a module can raise."""

    def to_jsonrpc_error(self, error: BaseException) -> dict[str, Any]:
        """{"code", "message", "data": {"type", …}}: total, and safe to be sent."""
        return self.map(error).json()

    def map(self, error: BaseException) -> MappedError:
        if not isinstance(error, ModuleError):
            return MappedError(INTERNAL, "Internal error", {"type": "InternalError"})
        row = ERROR_MAP.get(str(error.code), _UNKNOWN)
        if row in (_SCHEMA, _INPUT) and error.message.startswith(_OF_THE_MODULE):
            return MappedError(INTERNAL, "Internal error", {"type": row.kind or "ModuleExecuteError"})
        details = error.details if isinstance(error.details, Mapping) else {}
        if row.message is None:
            message = sanitized(_described(row, error, details))
        else:
            message = row.message.format(module_id=sanitized(str(details.get("module_id", ""))))
        data: dict[str, Any] = {"type": row.kind or _kind(error)}
        if row is _SCHEMA:
            data["errors"] = validation_errors(details)
        if isinstance(error.retryable, bool):
            data["retryable"] = error.retryable
        return MappedError(row.code, message[:MAX_MESSAGE_CHARACTERS], data)

    def log(self, error: BaseException, module_id: str, task_id: str) -> None:
        """All of it, for the operator: refusals as warnings, the rest with the stack."""
        code = getattr(error, "code", type(error).__name__)
        if code in ("ACL_DENIED", "APPROVAL_DENIED", "APPROVAL_TIMEOUT"):
            logger.warning("task %s: module %s was refused: %s", task_id, module_id, loggable(str(error)))
        else:
            logger.error("task %s: module %s failed: %s", task_id, module_id, loggable(str(error)), exc_info=error)


def hides(error: BaseException, module_id: str) -> bool:
    """Whether this means that, for its caller, there is no such skill: it is denied, or gone, or switched off."""
    if not isinstance(error, ModuleError) or error.code not in _HIDDEN:
        return False
    details = error.details if isinstance(error.details, Mapping) else {}
    return bool(details.get("target_id", details.get("module_id")) == module_id)  # and not one that it called itself


def validation_errors(details: Mapping[str, Any]) -> list[dict[str, str]]:
    """The wrong fields: JSON pointers as they are, words cleaned."""
    found = details.get("errors")
    return [
        {
            "path": str(item.get("path", ""))[:MAX_MESSAGE_CHARACTERS],
            "keyword": str(item.get("keyword", ""))[:100],
            "message": sanitized(str(item.get("message", ""))),
        }
        for item in (found if isinstance(found, list) else [])[:MAX_ERRORS]
        if isinstance(item, Mapping)
    ]


def _described(row: Row, error: ModuleError, details: Mapping[str, Any]) -> str:
    if row.kind == "ApprovalDeniedError":
        reason = getattr(getattr(error, "result", None), "reason", None) or details.get("reason")
        return f"Approval denied: {reason}" if reason else "Approval denied"
    return f"Invalid input: {error.message}"


def _kind(error: ModuleError) -> str:
    """The name of an error's class, if it is one of apcore's; a module's own classes are its own affair."""
    return type(error).__name__ if type(error).__module__.partition(".")[0] == "apcore" else "ModuleError"


# --------------------------------------------------------------------------------------------------------- sanitising

_PATHS = re.compile(r"(?:[A-Za-z]:)?[\\/](?:[^\s\\/'\"<>|:]+[\\/])+[^\s'\"<>|:,;)\]}]*|~/[^\s'\"]+|file://[^\s'\"]+")
_URLS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/@'\"]*:[^\s/@'\"]*@", re.IGNORECASE)
_SECRETS = re.compile(
    r"\b(\w*(?:password|passwd|secret|token|api_?key|credential)\w*)\s*[=:]\s*[^\s,;]+", re.IGNORECASE
)
_TRACE_LINE = re.compile(r"^\s*(?:Traceback\b|File \"|\^+\s*$|During handling of|The above exception)|\bline \d+\b")
_TRACE = re.compile(r"\bTraceback\b.*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def sanitized(message: str) -> str:
    """A message without paths, stack traces, credentials and control characters, of at most 500 characters."""
    lines = [line for line in message[:20_000].splitlines() if not _TRACE_LINE.search(line)]
    text = _CONTROL.sub("", " ".join(_TRACE.sub("", line).strip() for line in lines))
    text = _SECRETS.sub(r"\1=…", _URLS.sub("", text))
    return _PATHS.sub("[path]", text).strip()[:MAX_MESSAGE_CHARACTERS]


def loggable(text: str) -> str:
    """What somebody sent us, fit for a log: no control characters, of bounded length."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text)[:MAX_LOGGED_CHARACTERS]
