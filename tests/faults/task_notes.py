"""Notes of the processes of a pool about the tasks they run: one line each, written to the system at once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class TaskNotes:
    """A file of notes, which survives kill -9. ``at`` is the same clock in all processes."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind: str, **what: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.monotonic(), "pid": os.getpid(), **what})
        os.write(self._file, line.encode() + b"\n")


def read_notes(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return all notes of all processes, ordered by time."""
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return sorted(lines, key=lambda line: line["at"])
