"""Log lines of a process that runs for long: for people, or as JSON for whatever collects them."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class JSONLines(logging.Formatter):
    """One object per line: time, level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(*, as_json: bool) -> None:
    """Write to stderr what Holdfast tells, and the warnings of all others.

    A worker's module that has set up logging by itself keeps it, unless JSON is asked for.
    """
    logging.getLogger("holdfast").setLevel(logging.INFO)
    root = logging.getLogger()
    if root.handlers and not as_json:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JSONLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root.handlers = [handler]
