"""From what an agent answers back to the exception that it means: by the reason of 1.0, else by the code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keelbolt import errors
from keelbolt.errors import A2AConnectionError, A2AResponseError, A2AServerError, FieldViolation, KeelboltError
from keelbolt.protocol.errors import TABLE
from keelbolt.protocol.types import Json

MAX_WORDS = 500  # characters of a message; the rest is not ours to carry
MAX_VIOLATIONS = 20
GATEWAY = frozenset({502, 503, 504})
"""What proxies answer when the agent behind them can't be reached."""

_BY_REASON: dict[str, type[KeelboltError]] = {"UNAVAILABLE": errors.BusyError}
_BY_CODE: dict[int, type[KeelboltError]] = {}
_BY_NAME: dict[str, type[KeelboltError]] = {}
for _kind, _row in TABLE.items():
    _BY_REASON.setdefault(_row.reason, _kind)
    if _row.code != -32603:  # anything may be internal
        _BY_CODE.setdefault(_row.code, _kind)
        _BY_NAME.setdefault(_row.name, _kind)

_OF_TASK = (errors.TaskNotFoundError, errors.TaskNotCancelableError)


def from_jsonrpc(error: Json, *, status: int, headers: Mapping[str, str], task_id: str = "") -> KeelboltError:
    """The exception of a JSON-RPC error object."""
    if not isinstance(error, dict) or type(error.get("code")) is not int:
        return A2AResponseError("the agent answered with an error that can't be read", status=status)
    data = error.get("data")
    reason, metadata, violations = _details(data if isinstance(data, list) else [])
    kind = _BY_REASON.get(reason) or _BY_CODE.get(error["code"])
    words = _words(error.get("message"))
    return _made(kind, words, error["code"], status, headers, metadata.get("taskId") or task_id, violations)


def from_rest(body: Json, *, status: int, headers: Mapping[str, str], task_id: str = "") -> KeelboltError:
    """The exception of an HTTP error with a JSON body, of 1.0 or of 0.3."""
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
            code = body["code"] if type(body.get("code")) is int else None
            kind = _BY_NAME.get(error) if isinstance(error, str) else None
            kind, words = kind or _BY_CODE.get(code or 0), _words(body.get("message") or error)
    return _made(kind, words, code, status, headers, metadata.get("taskId") or task_id, violations)


def from_status(status: int, headers: Mapping[str, str]) -> KeelboltError:
    """The exception of an HTTP answer whose body says nothing that can be read."""
    if status in GATEWAY:
        return A2AConnectionError(f"the agent can't be reached: its proxy answered HTTP {status}")
    return _made(None, "", None, status, headers, "", [])


def _made(
    kind: type[KeelboltError] | None,
    words: str,
    code: int | None,
    status: int,
    headers: Mapping[str, str],
    task_id: str,
    violations: list[FieldViolation],
) -> KeelboltError:
    if status == 401:
        kind = errors.CredentialsRefused
    elif kind is None:
        kind = {403: errors.CredentialsRefused, 429: errors.RateLimitedError, 503: errors.BusyError}.get(status)
    if kind is None:
        if not words and code is None:
            return A2AResponseError(f"the agent answered HTTP {status}, and nothing of A2A", status=status)
        return A2AServerError(words or "the agent failed, and does not say why", code=code, status=status)
    if kind in _OF_TASK:
        return kind(task_id, None, words or None)
    if issubclass(kind, errors.ConcurrencyError):
        return kind(task_id)
    if kind is errors.InvalidParamsError:
        return errors.InvalidParamsError(words or None, violations)
    if kind is errors.SkillNotFoundError:
        return errors.SkillNotFoundError(words.removeprefix("Skill not found: ") or None)
    if issubclass(kind, errors.BusyError):
        return kind(words or None, retry_after=_seconds(headers))
    if issubclass(kind, errors.AuthenticationFailed):
        return kind(words or None, challenge=headers.get("www-authenticate", "")[:MAX_WORDS] or "Bearer")
    return kind(words or None)


def _details(details: list[Any]) -> tuple[str, dict[str, str], list[FieldViolation]]:
    reason, metadata, violations = "", {}, []
    for detail in details[:10]:
        if not isinstance(detail, dict):
            continue
        if isinstance(detail.get("reason"), str) and not reason:
            reason = detail["reason"]
            given = detail.get("metadata")
            metadata = {name: text for name, text in given.items() if isinstance(text, str)} if given else {}
        wrong = detail.get("fieldViolations")
        violations += [
            FieldViolation(_words(one.get("field")), _words(one.get("description")))
            for one in (wrong[:MAX_VIOLATIONS] if isinstance(wrong, list) else ())
            if isinstance(one, dict)
        ]
    return reason, metadata, violations


def _words(text: object) -> str:
    """What the agent says, as one short line that is safe to print."""
    if not isinstance(text, str):
        return ""
    line = " ".join("".join(each if each.isprintable() else " " for each in text[: 4 * MAX_WORDS]).split())
    return line if len(line) <= MAX_WORDS else line[: MAX_WORDS - 1] + "…"


def _seconds(headers: Mapping[str, str]) -> int:
    text = headers.get("retry-after", "")
    return min(int(text), 3600) if text.isascii() and text.isdigit() and len(text) < 10 else 5
