"""Log lines of a process that runs for long: for people, or as JSON for whatever collects them.

What a client sends can come into a line (an id, a host name, a text that was refused). So whatever is put into a
message is cut, and nothing that is no visible character stays as it is: no client writes a line of its own, or moves
the cursor of who reads it.
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

MAX_CHARACTERS = 1000  # of anything that is put into a message, and of a line of a traceback

FIELDS = ("task", "context", "attempt", "trace")
"""What a line about a task carries beside its message: ``extra=`` of the log call, members of a JSON line."""

LEVELS = ("debug", "info", "warning", "error")


class HumanLines(logging.Formatter):
    """Time, level and message; a traceback follows, indented, so that no line of it looks like one of ours."""

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
    return value if isinstance(value, int) else visible(_cut(str(value)))


def message(record: logging.LogRecord) -> str:
    """The message of a record, with everything that was put into it cut and clean."""
    text, given = str(record.msg), record.args
    if isinstance(given, Mapping):
        text %= {name: _cut(value) for name, value in given.items()}
    elif given:
        text %= tuple(map(_cut, given))
    return visible(masked(text.rstrip()))


def visible(text: str) -> str:
    """The text in one line, with an escape in the place of every character that can't be seen."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _cut(value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    text = str(value)
    return value if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    if not record.exc_info:
        return []
    error = record.exc_info[1]
    lines = masked(formatter.formatException(record.exc_info)).split("\n") if error is None else _lines(error)
    return [visible(_cut(line)) for line in lines]


def _lines(error: BaseException) -> list[str]:
    return described(error)["traceback"].split("\n")


def log_to_stderr(*, as_json: bool, level: str = "info") -> None:
    """Write to stderr what Keelbolt tells, and the warnings of all others.

    A worker's module that has set up logging by itself keeps it, unless JSON is asked for.
    """
    logging.getLogger("keelbolt").setLevel(level.upper())
    root = logging.getLogger()
    if root.handlers and not as_json:
        return
    handler = logging.StreamHandler()
    colours = handler.stream.isatty() and not os.environ.get("NO_COLOR")
    handler.setFormatter(JSONLines() if as_json else HumanLines(colours=colours))
    root.handlers = [handler]
