"""Maps module errors to JSON-RPC errors without operator-only details; the log has the full error."""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from keelbolt.apcore.catalog import Module
from keelbolt.apcore.library import BaseStep, ModuleError, apcore_errors

logger = logging.getLogger("keelbolt.apcore")

MAX_MESSAGE_CHARACTERS = 500
MAX_LOGGED_CHARACTERS = 1000
MAX_ERRORS = 20

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL = -32603
TASK_NOT_FOUND = -32001


class ModuleErrorRow(NamedTuple):
    """A row of the table. ``message`` None: the error's message, sanitised. ``kind`` None: the name of its class."""

    code: int
    message: str | None
    kind: str | None = None


_SAFETY = ModuleErrorRow(INTERNAL, "Safety limit exceeded")
_INPUT = ModuleErrorRow(INVALID_PARAMS, None)
_SCHEMA = ModuleErrorRow(INVALID_PARAMS, "Invalid params", "SchemaValidationError")
_UNKNOWN = ModuleErrorRow(INTERNAL, "Internal error")

ERROR_MAP: Mapping[str, ModuleErrorRow] = MappingProxyType(
    {
        "MODULE_NOT_FOUND": ModuleErrorRow(METHOD_NOT_FOUND, "Skill not found: {module_id}", "ModuleNotFoundError"),
        "SCHEMA_VALIDATION_ERROR": _SCHEMA,
        "SCHEMA_VALIDATION_FAILED": _SCHEMA,
        "ACL_DENIED": ModuleErrorRow(TASK_NOT_FOUND, "Task not found", "TaskNotFoundError"),
        "MODULE_EXECUTE_ERROR": ModuleErrorRow(INTERNAL, "Internal error", "ModuleExecuteError"),
        "MODULE_TIMEOUT": ModuleErrorRow(INTERNAL, "Execution timed out", "ModuleTimeoutError"),
        "INVALID_INPUT": _INPUT,  # alias of the next one in some documents
        "GENERAL_INVALID_INPUT": _INPUT,
        "INVALID_MODULE_ID": _INPUT,
        "CALL_DEPTH_EXCEEDED": _SAFETY,
        "CIRCULAR_CALL": _SAFETY,
        "CALL_FREQUENCY_EXCEEDED": _SAFETY,
        "MODULE_DISABLED": ModuleErrorRow(METHOD_NOT_FOUND, "Skill not found: {module_id}", "ModuleNotFoundError"),
        "APPROVAL_DENIED": ModuleErrorRow(INTERNAL, None, "ApprovalDeniedError"),
        "APPROVAL_TIMEOUT": ModuleErrorRow(INTERNAL, "The approval expired", "ApprovalTimeoutError"),
        "EXECUTION_CANCELLED": ModuleErrorRow(INTERNAL, "Canceled", "ExecutionCancelledError"),
        "CIRCUIT_OPEN": ModuleErrorRow(INTERNAL, "Temporarily unavailable; try again later"),
        "CIRCUIT_BREAKER_OPEN": ModuleErrorRow(INTERNAL, "Temporarily unavailable; try again later"),
        "TASK_LIMIT_EXCEEDED": ModuleErrorRow(INTERNAL, "Temporarily unavailable; try again later"),
    }
)
"""Rows by error code. Other codes map to an internal error that reveals only the class name."""

_HIDDEN = frozenset({"ACL_DENIED", "MODULE_NOT_FOUND", "MODULE_DISABLED"})
_APCORE_CODES = frozenset(value for name, value in vars(apcore_errors.ErrorCodes).items() if name.isupper())
_GUIDANCE = ("ai_guidance", "suggestion")
_FLAGS = ("user_fixable", "retryable")


@dataclass(frozen=True, slots=True)
class MappedError:
    """The error as the caller receives it."""

    code: int
    message: str
    data: dict[str, Any]

    def json(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "data": self.data}


class ErrorMapper:
    """Maps every error that a module can raise. With ``public``, modules may declare error messages public."""

    def __init__(self, *, public: bool = False) -> None:
        self._public = public

    def to_jsonrpc_error(self, error: BaseException, module: Module | None = None) -> dict[str, Any]:
        """Return {"code", "message", "data": {"type", …}}, safe to send; ``module`` is the called module."""
        return self.map(error, module).json()

    def map(self, error: BaseException, module: Module | None = None) -> MappedError:
        if not isinstance(error, ModuleError):
            return MappedError(INTERNAL, "Internal error", {"type": "InternalError"})
        code = str(error.code)
        row = ERROR_MAP.get(code, _UNKNOWN)
        if row in (_SCHEMA, _INPUT) and _is_the_agents(error, module):
            return MappedError(INTERNAL, "Internal error", {"type": row.kind or "ModuleExecuteError"})
        details = error.details if isinstance(error.details, Mapping) else {}
        if row is _UNKNOWN and self._public and module is not None and module.publishes(code):
            message = sanitized(error.message)
        elif row.message is None:
            message = sanitized(_described(row, error, details))
        else:
            message = row.message.format(module_id=sanitized(str(details.get("module_id", ""))))
        data: dict[str, Any] = {"type": row.kind or _kind(error), **_guidance(error, code, row)}
        if row is _SCHEMA:
            data["errors"] = validation_errors(details)
        return MappedError(row.code, message[:MAX_MESSAGE_CHARACTERS], data)

    def log(self, error: BaseException, module_id: str, task_id: str) -> None:
        """Log the full error for the operator: refusals as warnings, others with the stack trace."""
        code = getattr(error, "code", type(error).__name__)
        if code in ("ACL_DENIED", "APPROVAL_DENIED", "APPROVAL_TIMEOUT"):
            logger.warning("task %s: module %s was refused: %s", task_id, module_id, loggable(str(error)))
        else:
            logger.error("task %s: module %s failed: %s", task_id, module_id, loggable(str(error)), exc_info=error)


def without_error_texts(output: Any) -> Any:
    """Return the output of a system module with its errors ({"code", "message", …}) sanitised for callers."""
    if isinstance(output, list):
        return [without_error_texts(item) for item in output]
    if not isinstance(output, Mapping):
        return output
    found = {key: without_error_texts(value) for key, value in output.items()}
    code, message = found.get("code"), found.get("message")
    if isinstance(code, str) and isinstance(message, str):
        row = ERROR_MAP.get(code, _UNKNOWN)
        found["message"] = sanitized(message) if row is _INPUT else (row.message or "Internal error")
        found |= {key: sanitized(found[key]) for key in _GUIDANCE if isinstance(found.get(key), str)}
    return found


def _is_the_agents(error: ModuleError, module: Module | None) -> bool:
    """Return whether the agent caused a validation error: in an output, a chunk, or the input of a nested call."""
    details = error.details if isinstance(error.details, Mapping) else {}
    if details.get("code") == "STREAM_CHUNK_NOT_OBJECT" or error.message.startswith("Output validation failed"):
        return True
    origin = origin_of(error)
    if origin is None or origin.step not in (INPUT, OUTPUT):
        return False
    return origin.step == OUTPUT or (module is not None and origin.module_id != module.id)


def _guidance(error: ModuleError, code: str, row: ModuleErrorRow) -> dict[str, Any]:
    """Return the error's code and hints. apcore's hints name modules and limits, so hidden errors get none."""
    found: dict[str, Any] = {name: value for name in _FLAGS if isinstance(value := getattr(error, name, None), bool)}
    if code in _HIDDEN:
        return found
    found["code"] = sanitized(code)
    if row is not _SAFETY and (row is not _UNKNOWN or code not in _APCORE_CODES):
        hints = {name: getattr(error, name, None) for name in _GUIDANCE}
        found |= {name: sanitized(hint) for name, hint in hints.items() if isinstance(hint, str) and hint}
    return found


def hides(error: BaseException, module_id: str) -> bool:
    """Return whether the caller must see the skill as missing: it is denied, removed or disabled."""
    if not isinstance(error, ModuleError) or error.code not in _HIDDEN:
        return False
    details = error.details if isinstance(error.details, Mapping) else {}
    return bool(details.get("target_id", details.get("module_id")) == module_id)  # not a module that it called itself


def validation_errors(details: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the invalid fields: JSON pointers unchanged, messages sanitised."""
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


def _described(row: ModuleErrorRow, error: ModuleError, details: Mapping[str, Any]) -> str:
    if row.kind == "ApprovalDeniedError":
        reason = getattr(getattr(error, "result", None), "reason", None) or details.get("reason")
        return f"Approval denied: {reason}" if reason else "Approval denied"
    return f"Invalid input: {error.message}"


def _kind(error: ModuleError) -> str:
    """Return the class name of an apcore error; a module's own error classes are not revealed."""
    return type(error).__name__ if type(error).__module__.partition(".")[0] == "apcore" else "ModuleError"


# --------------------------------------------------------------------------------------------------------- sanitising

# Every repetition before a fixed text is bounded: with * the time would grow with the square of the length, and clients
# choose parts of these messages.
_ADDRESSES = re.compile(r"([a-z][a-z0-9+.-]{0,30})://([^\s'\"<>]*)", re.IGNORECASE)
_PATHS = re.compile(
    r"(?<![\w.:/\\~-])(?:/(?P<root>[^\s\\/'\"<>|:,;]+)/[^\s'\"<>|:,;)\]}]*|~/[^\s'\"<>|:,;)\]}]+"
    r"|(?:[A-Za-z]:[\\/]|\\\\)[^\s'\"<>|:,;)\]}]+)"
)
_SECRETS = re.compile(
    r"((?:password|passwd|secret|api_?key|credential)\w{0,40})[\"']?\s{0,9}[=:]\s*(?:\"[^\"]*\"|'[^']*'|[^\s,;]+)"
    r"|(token\w{0,40})[\"']?\s{0,9}(?:=|:(?=\s{0,9}[\"']?[^\s,;]{0,200}\d))\s*(?:\"[^\"]*\"|'[^']*'|[^\s,;]+)",
    re.IGNORECASE,
)
_TRACE_LINE = re.compile(
    r"^\s*(?:Traceback\b|File \"[^\"]*\", line \d+|[\^~]+\s*$|During handling of the above|The above exception)"
)
_TRACE = re.compile(r"\bTraceback\b.*|\bFile \"[^\"]*\", line \d+(?:, in \S+)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ROOTS = re.compile(
    "Applications|Library|System|Users|Volumes|app|bin|boot|code|data|dev|etc|home|lib|lib32|lib64|media|mnt|nix|opt|private"
    "|proc|root|run|sbin|snap|srv|sys|tmp|usr|var|work|workspace"
)


def sanitized(message: str) -> str:
    """Return a message without paths of this machine, stack traces, credentials and control characters.

    The result has at most 500 characters. URLs, dates and JSON pointers stay.
    """
    lines = [line for line in message[:20_000].splitlines() if not _TRACE_LINE.search(line)]
    text = _CONTROL.sub("", " ".join(_TRACE.sub("", line).strip() for line in lines))
    text = _SECRETS.sub(lambda found: f"{found[1] or found[2]}=…", text)
    kept: list[str] = []
    end = 0
    for address in _ADDRESSES.finditer(text):  # the path of a URL is not a path of this machine
        kept += [_without_paths(text[end : address.start()]), _address(address)]
        end = address.end()
    return "".join([*kept, _without_paths(text[end:])]).strip()[:MAX_MESSAGE_CHARACTERS]


def _address(found: re.Match[str]) -> str:
    """Return a URL without credentials."""
    scheme, rest = found[1], found[2]
    if scheme.lower() == "file":
        return "[path]"
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _without_paths(text: str) -> str:
    return _PATHS.sub(_path, text)


def _path(found: re.Match[str]) -> str:
    """Mask paths of this machine; /numbers/0 is a JSON pointer, and /v1/users belongs to a URL."""
    root = found["root"]
    if root is None or _ROOTS.fullmatch(root) or root in _root_directory():
        return "[path]"
    return found[0]


@lru_cache(maxsize=1)
def _root_directory() -> frozenset[str]:
    with contextlib.suppress(OSError):
        return frozenset(path.name for path in Path("/").iterdir())
    return frozenset()


def loggable(text: str) -> str:
    """Return received text without control characters and with limited length, for the log."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text)[:MAX_LOGGED_CHARACTERS]


# -------------------------------------------------------------------------------------------------------------- origins


GATE = "approval_gate"
INPUT = "input_validation"
OUTPUT = "output_validation"


class Origin(NamedTuple):
    """The name of the step, and the module that the pipeline ran."""

    step: str
    module_id: str


def origin_of(error: BaseException) -> Origin | None:
    """Return the innermost step in the error's traceback; None if no step raised the error.

    apcore's steps and modules raise the same errors, and a module may call another one: only the traceback
    distinguishes these cases.
    """
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        step = frame.f_locals.get("self")
        if isinstance(step, BaseStep):
            module_id = getattr(frame.f_locals.get("ctx"), "module_id", None)
            found = Origin(step.name, module_id if isinstance(module_id, str) else "")
    return found
