"""Log lines of a long-running process: as text for people, or as JSON for log collectors.

Log lines can contain data from clients (an id, a host name, a refused text). So values in a message are truncated, and
non-printable characters are escaped: a client can't forge a line or move the cursor of a terminal.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from keelbolt.observability.exceptions import described
from keelbolt.observability.masking import masked

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
