"""The commands and programs of the tutorial First agent and of the README work as described."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs/tutorial/first-agent.md").read_text()
KEELBOLT = f"{shlex.quote(sys.executable)} -c 'from keelbolt.cli.main import main; main()'"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def block(words: str, language: str = "sh") -> str:
    """Return the only block of the tutorial that contains these words."""
    found = {text for text in blocks(TUTORIAL, language) if words in text}
    assert len(found) == 1, words
    return found.pop()


@pytest.fixture
def port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


class Terminal:
    """A shell in a directory that keeps its variables; localhost:8000 is replaced by another port."""

    def __init__(self, folder: Path, port: str) -> None:
        self.folder = folder
        self.port = port
        self.shell = subprocess.Popen(
            ["sh"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        self.stdin: IO[str] = self.shell.stdin
        self.stdout: IO[str] = self.shell.stdout

    def type(self, lines: str) -> Iterator[str]:
        """Run these lines; yield each line of their output when it arrives."""
        self.stdin.write(lines.replace("localhost:8000", f"localhost:{self.port}") + "\necho; echo --over--\n")
        self.stdin.flush()
        for line in self.stdout:
            if line == "--over--\n":
                return
            yield line

    def run(self, lines: str) -> str:
        return "".join(self.type(lines)).strip()

    @contextmanager
    def serving(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """Run the server of the first terminal; yield its process when it listens."""
        assert "keelbolt serve" in line
        command = f"{line.strip().replace('keelbolt', KEELBOLT)} --port {self.port}"
        with serving(f"exec env {command}", self.folder) as process:
            yield process

    def close(self) -> None:
        self.stdin.close()
        self.stdout.close()
        self.shell.wait(20)


@contextmanager
def serving(command: str, folder: Path, begins: str = "as process") -> Iterator[subprocess.Popen[str]]:
    """Run a server; yield its process when it listens."""
    process = subprocess.Popen(["sh", "-c", command], cwd=folder, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            while "write-ahead log" in line:  # the write-ahead log of a killed process may be reported first
                line = process.stderr.readline()
            assert begins in line, line
            yield process
        finally:
            process.terminate()


@pytest.fixture
def terminal(tmp_path: Path, port: str) -> Iterator[Terminal]:
    found = Terminal(tmp_path, port)
    yield found
    found.close()


def test_the_tutorial_can_be_typed_in(terminal: Terminal) -> None:
    first, second, _ = blocks(TUTORIAL, "python")
    agent = terminal.folder / "agent.py"

    agent.write_text(first)
    with terminal.serving("keelbolt serve agent:Baker"):
        tasks = [json.loads(terminal.run(block("poppy roll")))["task"] for _ in range(2)]
        assert tasks[0]["artifacts"][0]["parts"] == [{"text": "One poppy roll, fresh from the oven."}]
        assert tasks[0] == tasks[1]
        assert json.loads(terminal.run(block("agent-card.json")))["description"] == "Bakes what you ask for."
    assert (terminal.folder / "keelbolt.db").exists()

    agent.write_text(second)
    serve = block("keelbolt serve agent:Baker")
    with terminal.serving(serve) as process:
        task_id = terminal.run(block("TASK=$("))
        asked = json.loads(terminal.run("curl -s localhost:8000/tasks/$TASK"))
        assert (asked["id"], asked["status"]["state"]) == (task_id, "TASK_STATE_INPUT_REQUIRED")
        assert asked["status"]["message"]["parts"] == [{"text": "How many?"}]
        seen = []
        for line in terminal.type(block("message:stream").replace('"20"', '"4"')):
            seen.append(line)
            if line == "id: 14\n":
                assert block("kill -9").split()[:2] == ["kill", "-9"]
                os.kill(process.pid, 9)
        assert "".join(seen).count("artifactUpdate") in (2, 3)  # the rest of the event may not have arrived
        assert process.wait(20) == -9

    with terminal.serving(serve):
        began = time.monotonic()
        rest = terminal.run(block("Last-Event-ID: 14"))
        assert time.monotonic() - began < 20
        assert rest.count("TASK_STATE_COMPLETED") == 1
        assert "rye bread 4. " in rest
        assert terminal.run(block("cat orders.txt")) == "flour for rye bread"
        shown = json.loads(terminal.run(block("keelbolt/v1/tasks/$TASK")))
        assert shown["runs"] == 2
        assert shown["steps"] == {"order flour": {"state": "done", "result": "a sack of flour"}}
        assert len(shown["task"]["artifacts"][0]["parts"]) == 4


def test_the_tutorial_installs_what_it_uses() -> None:
    assert blocks(TUTORIAL, "sh")[0].splitlines()[-1] == "pip install keelbolt"


def test_the_agent_of_the_readme_serves(terminal: Terminal) -> None:
    """The agent serves when started by Python and by the command."""
    [program] = [text for text in blocks((ROOT / "README.md").read_text(), "python") if "# agent.py" in text]
    (terminal.folder / "agent.py").write_text(program.replace("port=8000", f"port={terminal.port}"))
    line = block("poppy roll").replace("poppy roll", "well said")
    listens = f"The agent listens at http://localhost:{terminal.port}, with a page at /explorer; stop it with Ctrl-C"
    with serving(f"exec {shlex.quote(sys.executable)} agent.py", terminal.folder, listens):
        first = json.loads(terminal.run(line))["task"]
        assert [part["text"] for part in first["artifacts"][0]["parts"]] == ["well ", "said "]
    with terminal.serving("keelbolt serve agent:echo --storage sqlite:///agent.db"):
        assert json.loads(terminal.run(line))["task"]["id"] == first["id"]
