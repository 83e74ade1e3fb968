"""The commands of the tutorial Five minutes work: its agent is killed, and its client still gets its result."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.docs.test_first_agent import KEELBOLT, ROOT, blocks, port, serving

__all__ = ["port"]

PAGE = (ROOT / "docs/tutorial/five-minutes.md").read_text()


def keelbolt(line: str, port: str) -> str:
    return line.strip().replace("keelbolt ", f"{KEELBOLT} ", 1).replace("localhost:8000", f"localhost:{port}")


def test_the_agent_of_five_minutes_is_killed_and_goes_on(tmp_path: Path, port: str) -> None:
    [program] = blocks(PAGE, "python")
    (tmp_path / "agent.py").write_text(program)
    run, _install, serve, stream, send = blocks(PAGE, "sh")
    assert run == "make run\n"
    with serving(f"exec env {keelbolt(serve, port)} --port {port}", tmp_path) as process:
        assert process.stderr is not None
        assert "as process" in process.stderr.readline()  # the second process
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 2
        client = subprocess.Popen(
            ["sh", "-c", f"exec {keelbolt(stream.replace(' 12 ', ' 3 '), port)}"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with client:
            assert client.stdout is not None
            output = client.stdout.read(len("page 1"))
            for pid in children:
                os.kill(int(pid), 9)
            output += client.stdout.read()
            assert client.wait(30) == 0
        assert output.splitlines() == ["page 1. ", "page 1. page 2. page 3. "]  # starts again; page 1 is recorded
        again = keelbolt(send.replace(" 12 ", " 3 "), port)
        sent = subprocess.run(["sh", "-c", again], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30)
        assert sent.stdout == "page 1. page 2. page 3. \n"
