"""The commands of the page about deploying, on a real PostgreSQL; one machine is killed, and another continues."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from tests.docs.test_first_agent import KEELBOLT, ROOT, blocks, port

__all__ = ["port"]

PAGE = (ROOT / "docs/howto/deploy.md").read_text()
WRITTEN = "postgresql://agent:secret@db.internal/agents"


def test_the_commands_of_the_page(tmp_path: Path, port: str, postgres_url: str) -> None:
    (tmp_path / "agent.py").write_text(blocks(PAGE, "python")[0])
    lines = [line for block in blocks(PAGE, "sh") for line in block.splitlines() if line.startswith("keelbolt")]
    migrate, serve, worker, send, listed = lines
    environment = {**os.environ, "KEELBOLT_STORAGE": postgres_url, "KEELBOLT_LEASE_SECONDS": "2"}
    assert f"export KEELBOLT_STORAGE={WRITTEN}" in PAGE

    def start(line: str) -> subprocess.Popen[str]:
        line = line.replace(WRITTEN, shlex.quote(postgres_url)).replace("0.0.0.0", "127.0.0.1")
        line = line.replace("https://agent.example.com", "http://localhost:8000")  # this test has no proxy
        line = re.sub(r"\b8000\b", port, line).replace("--processes 4", "--processes 2")
        command = line.replace("keelbolt", KEELBOLT, 1)
        return subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(line: str) -> str:
        with start(line) as process:
            out, error = process.communicate(timeout=30)
        assert process.returncode == 0, error
        return out + error

    def until(process: subprocess.Popen[str], words: str) -> None:
        assert process.stderr is not None
        assert any(words in line for line in process.stderr), words

    run(migrate)
    with start(serve) as machine:
        try:
            until(machine, " serves at ")
            task_id = re.search(r"task (\S+)", run(send.replace(" 60 ", " 9 ")))[1]  # type: ignore[index]
            while " filed" not in run(f"keelbolt get http://localhost:8000 {task_id} --json"):
                pass
        finally:
            os.killpg(machine.pid, 9)
            machine.communicate(timeout=30)
    with start(worker) as other:
        try:
            output = run(f"keelbolt tasks tail {task_id} --after 0")  # until the task ends
            assert "9 forms are filed, in 2 attempt(s)" in output
            assert output.count("1 filed") <= 2  # the second run repeats at most the report after its last step
            assert task_id in run(listed)
        finally:
            other.terminate()
            other.communicate(timeout=30)
