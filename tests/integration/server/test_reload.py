"""`keelbolt serve --reload`: a change of a file restarts the worker; a broken file waits for the next change."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from keelbolt.cli.main import main
from keelbolt.cli.serve import look, serve_and_reload


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.1)


def test_a_change_restarts_the_worker(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    agent = tmp_path / "agent.py"

    def write(answer: str) -> None:
        agent.write_text(f"async def echo(ctx):\n    return {answer}\n")
        os.utime(agent, ns=(time.time_ns(), time.time_ns()))

    def says(text: str) -> bool:
        message = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": [{"text": "x"}]}
        try:
            reply = httpx2.post(f"http://127.0.0.1:{port}/message:send", json={"message": message}, timeout=10)
        except httpx2.HTTPError:
            return False
        return f'"text":"{text}"' in reply.text

    def logged(words: str) -> bool:
        return words in (tmp_path / "log").read_text()

    write("'first'")
    command = [sys.executable, "-m", "keelbolt", "serve", "agent:echo", "--reload", "--port", str(port)]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log) as served:
        try:
            until(lambda: says("first"))
            write("'second'")
            until(lambda: says("second"))
            write("(")
            until(lambda: logged("it restarts when a file changes"))
            write("'third'")
            until(lambda: says("third"))
        finally:
            served.send_signal(signal.SIGTERM)
            assert served.wait(30) == 0


def test_a_stop_during_a_restart_stops_the_new_process_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes while the old process drains: no other signal would reach the new process."""
    agent, started = tmp_path / "agent.py", list[subprocess.Popen[bytes]]()
    agent.write_text("")
    popen = subprocess.Popen

    def start(_command: list[str], **_: object) -> subprocess.Popen[bytes]:
        if started:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            os.utime(agent, ns=(0, 0))  # a change, seen at the first look
        started.append(popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        return started[-1]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", start)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert serve_and_reload([]) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert [process.poll() for process in started] == [-signal.SIGTERM, -signal.SIGTERM]


def test_libraries_are_not_watched(tmp_path: Path) -> None:
    for name in ("agent.py", "package/part.py", ".venv/lib.py", "node_modules/x.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert {Path(path).name for path in look(tmp_path)} == {"agent.py", "part.py"}


def test_modules_are_watched_otherwise() -> None:
    refused = CliRunner().invoke(main, ["serve", "--reload"])
    assert refused.exit_code == 1
    assert "--watch" in refused.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    environment = os.environ | {"_KEELBOLT_COMPLETE": f"{shell}_source"}
    command = [str(Path(sys.executable).with_name("keelbolt"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "_KEELBOLT_COMPLETE" in done.stdout
