"""`keelbolt serve --reload`: runs the server in a child process, and restarts it when a Python file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from keelbolt.cli.output import echo

LOOK_SECONDS = 0.5
DRAIN_SECONDS = "1"  # then running tasks are released and continue in the new process
SKIPPED = {"node_modules", "__pycache__", "venv", "site-packages"}

Seen = dict[str, int]


def serve_and_reload(arguments: list[str]) -> int:
    """Serve with these arguments until SIGINT or SIGTERM; return the exit code."""
    stopping = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        if number == signal.SIGTERM and child.poll() is None:  # a terminal sends SIGINT to the child too
            child.terminate()

    command = [sys.executable, "-m", "keelbolt", *arguments]
    environment = {"KEELBOLT_DRAIN_SECONDS": DRAIN_SECONDS, **os.environ}
    seen = look(Path.cwd())
    child = subprocess.Popen(command, env=environment)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    echo(f"watching {len(seen)} Python files below {Path.cwd()}", err=True, dim=True)
    failed = False
    while not stopping:
        time.sleep(LOOK_SECONDS)
        if child.poll() is not None and not failed and not stopping:
            failed = True
            echo(f"the agent exited with code {child.returncode}; it restarts when a file changes", err=True, fg="red")
        if (now := look(Path.cwd())) != seen and not stopping:
            changed = ", ".join(sorted(Path(path).name for path, _ in now.items() ^ seen.items())[:3])
            echo(f"{changed} changed; restarting", err=True, dim=True)
            seen, failed = now, False
            if child.poll() is None:
                child.terminate()
                child.wait()
            child = subprocess.Popen(command, env=environment)
    return child.wait()


def look(folder: Path) -> Seen:
    """Return the modification time of each Python file below the folder, without hidden folders and libraries."""
    return dict(_files(str(folder)))


def _files(folder: str) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in SKIPPED:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
        elif entry.name.endswith(".py"):
            try:
                yield entry.path, entry.stat().st_mtime_ns
            except OSError:  # removed meanwhile
                continue
