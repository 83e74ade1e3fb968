"""The example agent of modules works as its README describes."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx2
from click.testing import CliRunner, Result

from keelbolt.cli.main import main
from tests.integration.server.test_serve_command import Serving, serving

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "apcore_agent"


def run(line: str, url: str) -> Result:
    words = shlex.split(line.replace("http://localhost:8000", url), comments=True)
    assert words.pop(0) == "keelbolt"
    with contextlib.chdir(EXAMPLE):
        ran = CliRunner().invoke(main, words)
    assert ran.exit_code == (4 if "reply with: " in ran.stderr else 0), ran.output  # 4: the agent asks a question
    return ran


def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    lines = re.findall(r"^keelbolt .*$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    [skills, serve, card, send, stream, order, _carrier] = lines
    assert "needs approval" in run(skills, "").stdout
    options = shlex.split(serve)[2:]
    with serving(tmp_path, *options, cwd=EXAMPLE) as found:
        assert isinstance(found, Serving)
        assert "Counts the words" in run(card, found.url).stdout
        assert '"words": 6' in run(send, found.url).stdout
        assert run(stream, found.url).stdout.count('{"letter": ') == len("keelbolt")

        asked = run(order, found.url)
        assert "Which size of shirt?" in asked.stdout
        [task] = re.findall(r"task (\S+) input_required", asked.stderr)
        assert '"ordered": "shirt, M"' in run(f"keelbolt send {found.url} M --task {task}", found.url).stdout

        refund = 'keelbolt send http://localhost:8000 \'{"order": "A-1", "cents": 1250}\' --skill shop.refund'
        asked = run(refund, found.url)
        assert "Approval required for shop.refund" in asked.stdout
        [task] = re.findall(r"task (\S+) input_required", asked.stderr)
        assert "12.50 paid back" in run(f"keelbolt send {found.url} approved --task {task}", found.url).stdout
        assert found.stop() == 0


def test_the_same_from_python(tmp_path: Path) -> None:
    program = (EXAMPLE / "agent.py").read_text()
    assert "storage=" in program
    program = program.replace('host="127.0.0.1",', 'host="127.0.0.1", port=0,').replace(
        "__file__", repr(str(EXAMPLE / "a"))
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if " serves at " in line)
        url = re.search(r"http://localhost:\d+", line)
        assert url is not None
        card = httpx2.get(f"{url[0]}/.well-known/agent-card.json").json()
        assert (card["name"], len(card["skills"])) == ("Shop assistant", 5)
        assert httpx2.get(f"{url[0]}/explorer/").status_code == 200
        process.terminate()
        assert process.wait(20) == 0
    assert (tmp_path / "shop.db").exists()


def test_errors_on_the_command_line(tmp_path: Path) -> None:
    """The message names the skill, the fields with their pointers, and how to name skills."""
    with serving(tmp_path, "--extensions-dir", "extensions", "--approval", "caller", cwd=EXAMPLE) as found:
        ask = CliRunner().invoke
        for command in ("send", "stream"):
            nope = ask(main, [command, found.url, "x", "--skill", "text.cont"])
            assert nope.exit_code == 2
            assert nope.stderr.startswith("error: the agent has no skill 'text.cont'; use one of text.count")
        wrong = ask(main, ["send", found.url, '{"order": "A-1", "cents": "many"}', "--skill", "shop.refund"])
        assert wrong.stderr.startswith("error: Invalid params (/cents: ")
        assert "(text.count): " in ask(main, ["card", found.url]).stdout
        assert '"skillId": "text.' in found.printed  # no example command makes a refund
