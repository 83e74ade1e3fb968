"""What processes of a pool note about the tasks they run: a line each, handed to the system at once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class TaskNotes:
    """A file of notes. A killed process keeps what it has written; ``at`` is the same clock in all processes."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind: str, **what: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.monotonic(), "pid": os.getpid(), **what})
        os.write(self._file, line.encode() + b"\n")


def read_notes(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """All notes of all processes, by time."""
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return sorted(lines, key=lambda line: line["at"])
