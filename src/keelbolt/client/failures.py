"""Converts error responses of agents to exceptions.

The HTTP status decides first (401, 403, 429, and 502 to 504 without a reason of 1.0), then the reason of 1.0, then the
code. Errors that are not about the request name the address that responded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keelbolt import errors
from keelbolt.client.endpoints import place_of
from keelbolt.errors import A2AConnectionError, A2AResponseError, A2AServerError, FieldViolation, KeelboltError
from keelbolt.protocol.errors import TABLE
from keelbolt.protocol.types import Json

MAX_WORDS = 500  # characters of a message; the rest is cut off
MAX_VIOLATIONS = 20
GATEWAY = frozenset({502, 503, 504})
"""Statuses of proxies that can't reach the agent."""

_BY_REASON: dict[str, type[KeelboltError]] = {"UNAVAILABLE": errors.BusyError}
_BY_CODE: dict[int, type[KeelboltError]] = {}
_BY_NAME: dict[str, type[KeelboltError]] = {}
for _kind, _row in TABLE.items():
    _BY_REASON.setdefault(_row.reason, _kind)
    if _row.code != -32603:  # the code for internal errors identifies no class
        _BY_CODE.setdefault(_row.code, _kind)
        _BY_NAME.setdefault(_row.name, _kind)

_OF_TASK = (errors.TaskNotFoundError, errors.TaskNotCancelableError)


def from_jsonrpc(
    error: Json, *, status: int, headers: Mapping[str, str], task_id: str = "", url: str = ""
) -> KeelboltError:
    """Return the exception of a JSON-RPC error object."""
    if not isinstance(error, dict) or type(error.get("code")) is not int:
        if status != 200:
            return from_status(status, headers, url=url)
        return A2AResponseError(f"{_at(url)}the agent returned an error that can't be read", status=status)
    data = error.get("data")
    reason, metadata, violations = _details(data if isinstance(data, list) else [])
    kind = _BY_REASON.get(reason) or _BY_CODE.get(error["code"])
    words = _words(error.get("message"))
    return _made(kind, words, error["code"], status, headers, metadata.get("taskId") or task_id, violations, url)


def from_rest(
    body: Json, *, status: int, headers: Mapping[str, str], task_id: str = "", url: str = ""
) -> KeelboltError:
    """Return the exception of an HTTP error with a JSON body, of 1.0 or of 0.3."""
    code: int | None = None
    kind: type[KeelboltError] | None = None
    metadata: dict[str, str] = {}
    violations: list[FieldViolation] = []
    words = ""
    if isinstance(body, dict):
        error = body.get("error")
        if isinstance(error, dict):
            details = error.get("details")
            reason, metadata, violations = _details(details if isinstance(details, list) else [])
            kind, words = _BY_REASON.get(reason), _words(error.get("message"))
        else:
            # FastAPI wraps the agent's error in `detail`; for an invalid request it lists the fields there.
            inner = body.get("detail")
            said = inner if isinstance(inner, dict) else body
            code = said["code"] if type(said.get("code")) is int else None
            kind = _BY_NAME.get(error) if isinstance(error, str) else None
            kind = kind or _BY_CODE.get(code or 0)
            words = _words(said.get("message") or error)
            if kind is None and code is None and words:
                kind = _by_status_v03(status, task_id)
            if isinstance(inner, list) and status in (400, 422):
                kind, violations = errors.InvalidParamsError, _places(inner)
    return _made(kind, words, code, status, headers, metadata.get("taskId") or task_id, violations, url)


def _by_status_v03(status: int, task_id: str) -> type[KeelboltError] | None:
    """Return the error class by status, for the official 0.3 server, which sends only a text over REST."""
    if status == 404:
        return errors.TaskNotFoundError if task_id else None
    return {
        409: errors.TaskNotCancelableError,
        415: errors.ContentTypeNotSupportedError,
        501: errors.UnsupportedOperationError,
    }.get(status)


def _places(found: list[Any]) -> list[FieldViolation]:
    return [
        FieldViolation(".".join(str(step) for step in one.get("loc") or ())[:MAX_WORDS], _words(one.get("msg")))
        for one in found[:MAX_VIOLATIONS]
        if isinstance(one, dict) and isinstance(one.get("loc") or [], list)
    ]


def from_grpc(
    code: str, words: str, details: list[Any], *, headers: Mapping[str, str], task_id: str = "", url: str = ""
) -> KeelboltError:
    """Return the exception of a gRPC status; 0.3 prefixes the message with the error name."""
    reason, metadata, violations = _details(details)
    name, _, rest = words.partition(": ")
    kind = _BY_REASON.get(reason)
    if kind is None and name in _BY_NAME:
        kind, words = _BY_NAME[name], rest
    if kind is None:
        kind = _BY_GRPC.get(code)
        if code == "UNAVAILABLE":
            sent = not any(phrase in words for phrase in _NOT_CONNECTED)
            what = "the connection to the agent broke" if sent else "can't connect. Is the agent running?"
            return A2AConnectionError(f"{_at(url)}{what}", sent=sent)
        if code == "NOT_FOUND" and task_id:
            kind = errors.TaskNotFoundError
    status = {"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429, "INTERNAL": 500}.get(code, 0)
    if status == 429 and reason and kind is not None:
        status = 0  # a message or a header that is too large
    text = _words(words) or code
    return _made(kind, text, None, status, headers, metadata.get("taskId") or task_id, violations, url)


_NOT_CONNECTED = ("failed to connect", "Connection refused", "DNS resolution", "errors resolving")
_BY_GRPC: dict[str, type[KeelboltError]] = {
    "UNIMPLEMENTED": errors.MethodNotFoundError,
    "INVALID_ARGUMENT": errors.InvalidParamsError,
}


def from_status(status: int, headers: Mapping[str, str], *, url: str = "") -> KeelboltError:
    """Return the exception of an HTTP response without a readable body."""
    return _made(None, "", None, status, headers, "", [], url)


def _made(
    kind: type[KeelboltError] | None,
    words: str,
    code: int | None,
    status: int,
    headers: Mapping[str, str],
    task_id: str,
    violations: list[FieldViolation],
    url: str,
) -> KeelboltError:
    at = _at(url)
    if status in (401, 403):
        kind = errors.CredentialsRefused
    elif status == 429 and not (kind is not None and issubclass(kind, errors.BusyError)):
        kind = errors.RateLimitedError
    elif kind is None and status == 503 and (words or "retry-after" in headers):
        kind = errors.BusyError
    elif kind is None and status in GATEWAY:
        return A2AConnectionError(f"{at}the agent can't be reached: its proxy returned HTTP {status}")
    if kind is None:
        if not words and code is None:
            return A2AResponseError(f"{at}the agent returned HTTP {status} without an A2A error", status=status)
        return A2AServerError(f"{at}{words or 'the agent failed and gave no reason'}", code=code, status=status)
    if kind in _OF_TASK:
        return kind(task_id, None, words or None)
    if issubclass(kind, errors.ConcurrencyError):
        return kind(task_id)
    if kind is errors.InvalidParamsError:
        return errors.InvalidParamsError(words or None, violations)
    if kind is errors.SkillNotFoundError:
        return errors.SkillNotFoundError(words.removeprefix("Skill not found: ") or None)
    if issubclass(kind, errors.BusyError):
        return kind(f"{at}{words or kind.__doc__}", retry_after=_seconds(headers))
    if issubclass(kind, errors.AuthenticationFailed):
        if status == 403:
            words = words or "permission denied (HTTP 403)"
        return kind(
            f"{at}{words}" if words else None, challenge=headers.get("www-authenticate", "")[:MAX_WORDS] or "Bearer"
        )
    return kind(words or None)


def _details(details: list[Any]) -> tuple[str, dict[str, str], list[FieldViolation]]:
    reason, metadata, violations = "", {}, []
    for detail in details[:10]:
        if not isinstance(detail, dict):
            continue
        if isinstance(detail.get("reason"), str) and not reason:
            reason = detail["reason"]
            given = detail.get("metadata")
            given = given if isinstance(given, dict) else {}
            metadata = {name: text for name, text in given.items() if isinstance(text, str)}
        wrong = detail.get("fieldViolations")
        violations += [
            FieldViolation(_words(one.get("field")), _words(one.get("description")))
            for one in (wrong[:MAX_VIOLATIONS] if isinstance(wrong, list) else ())
            if isinstance(one, dict)
        ]
    return reason, metadata, violations


def _at(url: str) -> str:
    return f"{place_of(url)}: " if url else ""


def _words(text: object) -> str:
    """Return the agent's text as one short line that is safe to print."""
    if not isinstance(text, str):
        return ""
    line = " ".join("".join(each if each.isprintable() else " " for each in text[: 4 * MAX_WORDS]).split())
    return line if len(line) <= MAX_WORDS else line[: MAX_WORDS - 1] + "…"


def _seconds(headers: Mapping[str, str]) -> int:
    text = headers.get("retry-after", "")
    return min(int(text), 3600) if text.isascii() and text.isdigit() and len(text) < 10 else 5
