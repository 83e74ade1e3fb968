"""Texts for operators: log lines as text or as JSON, and descriptions of exceptions. Secrets in them are masked.

Log lines can contain data from clients (an id, a host name, a refused text). So values in a message are truncated, and
non-printable characters are escaped: a client can't forge a line or move the cursor of a terminal.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from traceback import TracebackException
from types import TracebackType
from typing import Any

MAX_CHARACTERS = 1000  # limit of each value in a message, and of a line of a traceback

FIELDS = ("task", "context", "attempt", "trace")
"""Fields of a line about a task: ``extra=`` of the log call, members of a JSON line."""

LEVELS = ("debug", "info", "warning", "error")


class HumanLines(logging.Formatter):
    """Time, level and message, followed by an indented traceback, so that its lines can't look like log lines."""

    def __init__(self, *, colours: bool = False) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname
        if self._colours and record.levelno >= logging.WARNING:
            level = f"\x1b[{33 if record.levelno < logging.ERROR else 31}m{level}\x1b[0m"
        line = f"{self.formatTime(record)} {level} {message(record)}"
        return "\n    ".join([line, *_traceback(self, record)])


class JSONLines(logging.Formatter):
    """One object per line: time, level, logger, pid, message, fields of a task, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": message(record),
        }
        line |= {name: _field(value) for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if traceback := _traceback(self, record):
            line["exception"] = "\n".join(traceback)
        return json.dumps(line)


def _field(value: Any) -> Any:
    return value if isinstance(value, int) else visible(_cut_value(str(value)))


def message(record: logging.LogRecord) -> str:
    """Return the message of a record, with its values truncated and escaped."""
    text, given = str(record.msg), record.args
    if isinstance(given, Mapping):
        text %= {name: _cut_value(value) for name, value in given.items()}
    elif given:
        text %= tuple(map(_cut_value, given))
    return visible(masked(text.rstrip()))


def visible(text: str) -> str:
    """Return the text in one line, with non-printable characters escaped."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _cut_value(value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    text = str(value)
    return value if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    if not record.exc_info:
        return []
    error = record.exc_info[1]
    lines = masked(formatter.formatException(record.exc_info)).split("\n") if error is None else _lines(error)
    return [visible(_cut_value(line)) for line in lines]


def _lines(error: BaseException) -> list[str]:
    return described(error)["traceback"].split("\n")


def log_to_stderr(*, as_json: bool, level: str = "info") -> None:
    """Write Keelbolt's log lines and the warnings of other libraries to stderr.

    If a worker's module has already configured logging, its configuration stays, unless JSON is requested.
    """
    logging.getLogger("keelbolt").setLevel(level.upper())
    root = logging.getLogger()
    if root.handlers and not as_json:
        return
    handler = logging.StreamHandler()
    colours = handler.stream.isatty() and not os.environ.get("NO_COLOR")
    handler.setFormatter(JSONLines() if as_json else HumanLines(colours=colours))
    root.handlers = [handler]


# ----------------------------------------------------------------------------------------------------------- exceptions


MESSAGE_CHARACTERS = 2_000
TRACEBACK_CHARACTERS = 16_000
LINE_CHARACTERS = 1_000
READ_CHARACTERS = 64_000  # length of the message that is searched for secrets


def described(error: BaseException, *, skip: str | None = None) -> dict[str, str]:
    """Return ``type``, ``message`` and ``traceback`` of an exception.

    The traceback leaves out its first frames that are in files below the folder ``skip``.
    """
    kind = type(error)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 - an exception may have any __str__
        message = f"<str() of the exception raised {type(broken).__name__}>"
    lines = TracebackException(kind, error, _without_first(error.__traceback__, skip), compact=True).format()
    text = "".join(f"{_cut(line, LINE_CHARACTERS)}\n" for each in lines for line in each.rstrip("\n").split("\n"))
    return {
        "type": f"{module}{kind.__qualname__}",
        "message": _cut(masked(message[:READ_CHARACTERS]), MESSAGE_CHARACTERS),
        "traceback": _without_middle(masked(text)).rstrip("\n"),
    }


def _without_first(traceback: TracebackType | None, skip: str | None) -> TracebackType | None:
    """Return the traceback from the first frame outside of the folder on; all of it if there is none."""
    found = traceback
    while skip is not None and found is not None and found.tb_frame.f_code.co_filename.startswith(skip):
        found = found.tb_next
    return found if found is not None else traceback


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _without_middle(text: str) -> str:
    """Keep the beginning and the end, which holds the exception itself."""
    if len(text) <= TRACEBACK_CHARACTERS:
        return text
    half = TRACEBACK_CHARACTERS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


# -------------------------------------------------------------------------------------------------------------- masking


MASK = "•••"
_NAMES = (
    "token|secret|passw(?:or)?d|passphrase|authorization|credential|api[_-]?key|private[_-]?key|access[_-]?key|cookie"
)
SECRET_NAME = re.compile(rf"(?:{_NAMES})s?$", re.IGNORECASE)
"""Names of values that are secrets."""
_SECRET_VARIABLE = re.compile(rf"(?:{_NAMES}|key)s?$", re.IGNORECASE)
_VARIABLE_CHARACTERS = 8  # shorter values also occur in ordinary text
_NAMED = re.compile(
    rf"""(?<![\w-])(["']?[\w-]*(?:{_NAMES})s?["']?\s*[=:]\s*)"""
    r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?:bearer|basic)\s+[^\s"',;]+|[^\s"',;&)}\]]+)""",
    re.IGNORECASE,
)
_PASSWORD_IN_URL = re.compile(r"(://[^\s/:@]*):[^\s/]+@")
_KNOWN_FORMS = re.compile(
    r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"  # a JSON Web Token
    r"|\b(?:sk|pk|rk)[-_][\w-]{16,}"
    r"|\b(?:kb|whsec)_[\w+/=-]{20,}"  # Keelbolt's own keys and webhook secrets
    r"|\bgh[opsur]_\w{20,}"
    r"|\bxox[abprs]-[\w-]{10,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|(?<=\bbearer )[\w.~+/=-]{8,}",
    re.IGNORECASE,
)


def masked(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the text with secrets masked: by name, by format, or because they are values of secret variables."""
    for name, value in environment.items():
        if len(value) >= _VARIABLE_CHARACTERS and value in text and _SECRET_VARIABLE.search(name):
            text = text.replace(value, MASK)
    text = _PASSWORD_IN_URL.sub(rf"\1:{MASK}@", text)
    text = _NAMED.sub(_hide, text)
    return _KNOWN_FORMS.sub(MASK, text)


def _hide(found: re.Match[str]) -> str:
    name, value = found.groups()
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{quote}{MASK}{quote}"
