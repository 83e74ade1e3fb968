"""The commands of the page about workers work as described."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/howto/run-workers.md").read_text()
KEELBOLT = [sys.executable, "-c", "from keelbolt.cli.main import main; main()"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def commands() -> Iterator[list[str]]:
    for block in blocks("sh"):
        for line in block.splitlines():
            words = shlex.split(line)
            assert words[0] == "keelbolt"
            yield words[1:]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the worker of the page until it takes tasks."""
    (tmp_path / "agent.py").write_text(blocks("python")[0])
    command = next(words for words in commands() if words[0] == "worker")
    process = subprocess.Popen([*KEELBOLT, *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stderr is not None
        try:
            assert "runs tasks from sqlite" in process.stderr.readline()
            yield process
        finally:
            process.kill()


def test_the_page_can_be_typed_in(worker: subprocess.Popen[str], tmp_path: Path) -> None:
    """Each command runs unchanged; the task id of `show` is fictitious."""
    results = {}
    for words in commands():
        if words[0] != "worker":
            ran = subprocess.run([*KEELBOLT, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
            results[" ".join(words[:2])] = (ran.returncode, ran.stdout + ran.stderr)
    assert results["tasks send"][0] == 0
    assert "Hello, Ada!" in results["tasks send"][1]
    assert "completed" in results["tasks list"][1]
    assert (results["dead list"][0], results["dead requeue"][0]) == (0, 0)
    assert "no such task" in results["tasks show"][1]
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait(30) == 0
