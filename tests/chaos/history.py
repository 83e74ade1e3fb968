"""Histories: the requests, responses and observations of a process. One file per process, one line per event.

A line is written by one system call, so a killed process leaves whole lines. Times are of the monotonic clock, which
all processes of a machine share.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROTATION_SECONDS = 6.0
SLOW_FROM = float(os.environ.get("CHAOS_SOAK", "nan"))  # monotonic time
PROGRESS = "progress"  # the size of this file is the number of responses


class History:
    """Writes the history of this process."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}-{os.getpid()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._progress = os.open(folder / PROGRESS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._numbers = itertools.count()
        self._name = f"{name}-{os.getpid()}"
        self.id = f"{os.getpid()}t{int(time.monotonic() * 1000)}"  # the system reuses pids

    def ask(self, what: str, **about: Any) -> str:
        """Record a request before it is sent; return the id for its response."""
        key = f"{self.id}-{next(self._numbers)}"
        self._write("ask", what, about, key)
        return key

    def answer(self, key: str, what: str, **about: Any) -> None:
        """Record the response to a request."""
        self._write("answer", what, about, key)
        os.write(self._progress, b".")

    def note(self, what: str, **about: Any) -> str:
        """Record an event of this process; return its id."""
        key = f"{self.id}-{next(self._numbers)}"
        self._write("note", what, about, key)
        return key

    def _write(self, kind: str, what: str, about: dict[str, Any], key: str) -> None:
        line = {"at": time.monotonic(), "by": self._name, "kind": kind, "what": what, "key": key, **about}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def pace() -> float:
    """Return the factor of the users' pauses. A soak has a low rate, and begins with a higher one to fill caches."""
    if math.isnan(SLOW_FROM):
        return 1.0
    return 3.0 if time.monotonic() < SLOW_FROM else 20.0


def rotating(name: str) -> str:
    """Return a key that all processes share for some seconds, so that its data stays small."""
    return f"{name}-{int(time.monotonic() // ROTATION_SECONDS)}"


@dataclass(slots=True)
class Asked:
    """A request and its response (None: no response, so it may or may not have had an effect)."""

    what: str
    asked: dict[str, Any]
    answer: dict[str, Any] | None = None

    @property
    def began(self) -> float:
        return float(self.asked["at"])

    @property
    def ended(self) -> float:
        return float(self.answer["at"]) if self.answer is not None else float("inf")


@dataclass(slots=True)
class Histories:
    """The histories of all processes of a campaign."""

    requests: dict[str, list[Asked]] = field(default_factory=lambda: defaultdict(list))
    notes: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    _runs: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def answered(self, what: str) -> list[Asked]:
        """Return the requests of this kind with a response."""
        return [asked for asked in self.requests[what] if asked.answer is not None]

    def runs_of(self, task: str) -> list[dict[str, Any]]:
        """Return the notes of the runs of a task."""
        if not self._runs:
            for note in self.notes["run"]:
                self._runs[note["task"]].append(note)
        return self._runs[task]

    def count(self) -> dict[str, int]:
        """Return the answered requests by kind."""
        return {what: len(self.answered(what)) for what in sorted(self.requests)}


def read_histories(folder: Path) -> Histories:
    """Return all histories of a folder, ordered by time."""
    lines: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.jsonl")):
        lines += _lines(path.read_bytes().splitlines())
    lines.sort(key=lambda line: line["at"])
    found = Histories()
    open_requests: dict[str, Asked] = {}
    for line in lines:
        if line["kind"] == "note":
            found.notes[line["what"]].append(line)
        elif line["kind"] == "ask":
            open_requests[line["key"]] = asked = Asked(line["what"], line)
            found.requests[line["what"]].append(asked)
        else:
            open_requests[line["key"]].answer = line
    return found


def _lines(raw: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    for line in raw:
        try:
            yield json.loads(line)
        except ValueError:  # the disk was full
            continue
