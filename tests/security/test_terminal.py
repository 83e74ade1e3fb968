"""Attack: an agent or a caller sends text that clears, fakes or controls the reader's terminal."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import logging
import os
import pty
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import keelbolt.cli
from keelbolt.observability.logs import HumanLines, JSONLines
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig, SkillConfig
from keelbolt.protocol.requests import PushConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.state import StateStore
from keelbolt.tasks import Envelope, TaskContext
from keelbolt.webhooks.configs import PushConfigs
from tests.integration.server.serving import served
from tests.integration.tasks.stage import message

EVIL = (
    "\x1b[2J\x1b[H"  # clears the screen
    "\x1b]0;title\x07"  # sets the title
    "\x1b]52;c;ZXZpbA==\x07"  # writes the clipboard
    "\x9b31m\x9d\x90"  # the same as one character
    "\rfake\b\b\x7f\x0b\x0c"
    "\u202e\u2066"  # reverses the text direction
)
WRONG = frozenset("\x1b\x07\x08\x0b\x0c\x7f\x9b\x9d\x90\u202e\u2066")
STYLES = ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[4m", "\x1b[1;31m")
LIVE = ("\x1b[?25l", "\x1b[?25h", "\x1b[2K", "\x1b[1A", "\r")  # the spinner of rich on stderr


async def evil(ctx: TaskContext) -> None:
    word = ctx.user_text.partition(" ")[0]
    await ctx.emit_artifact(file_bytes=b"x", name=f"name {EVIL}", filename=f"file {EVIL}")
    await ctx.emit_text_artifact(f"text {EVIL}")
    await ctx.emit_data_artifact({f"key {EVIL}": f"value {EVIL}"})
    if word == "fail":
        await ctx.fail(f"because {EVIL}")
    elif word == "ask":
        await ctx.request_input(f"Well? {EVIL}")
    elif word == "say":
        await ctx.reply_directly(f"said {EVIL}")
    else:
        await ctx.complete(f"done {EVIL}")


def agent(storage: str) -> A2AServer:
    card = AgentCardConfig(
        name=f"Agent {EVIL}",
        description=f"Describes {EVIL}",
        version=f"1 {EVIL}",
        skills=[SkillConfig(id=f"s{EVIL}", name=f"Skill {EVIL}", description=f"Does {EVIL}", examples=[f"Say {EVIL}"])],
        capabilities=CapabilitiesConfig(streaming=True, push_notifications=True),
    )
    settings = ServerSettings.of({}, operators="loopback")
    return A2AServer(worker=evil, agent_card=card, storage=storage, settings=settings)


def on_a_terminal(*command: str) -> str:
    """Return the output of a command on a terminal, from stdout and stderr."""
    ours, theirs = pty.openpty()
    found = bytearray()

    def read() -> None:
        while True:
            try:
                data = os.read(ours, 65_536)
            except OSError:
                return
            if not data:
                return
            found.extend(data)

    reading = threading.Thread(target=read)
    reading.start()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "PYTHONUTF8": "1"}
    subprocess.run(
        [sys.executable, "-m", "keelbolt", *command],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        check=False,
        timeout=60,
    )
    os.close(theirs)
    reading.join(timeout=10)
    os.close(ours)
    return found.decode("utf-8", "replace")


def clean(text: str) -> None:
    """Return whether the text contains no control sequences except Keelbolt's own styles."""
    for own in (*STYLES, *LIVE):
        text = text.replace(own, "")
    wrong = sorted({ascii(each) for each in text if each in WRONG})
    assert not wrong, (wrong, ascii(text)[:2000])


@pytest.fixture
async def served_agent(tmp_path: Path) -> AsyncIterator[tuple[str, str, str]]:
    """Return the URL of an agent, its storage, and the id of a task."""
    storage = f"sqlite:///{tmp_path}/agent.db"
    server = agent(storage)
    async with served(server) as url:
        engine = server.routes.service.engine
        push = PushConfigs().new(PushConfig(id="c", url="https://hooks.example.com/"))
        sent = await engine.tasks.send(message(f"Hello {EVIL}", message_id="m"), Envelope(push=push))
        await engine.tasks.settled(sent, seconds=20)
        yield url, storage, sent.task.task_id


async def test_no_text_of_an_agent_controls_the_terminal(served_agent: tuple[str, str, str]) -> None:
    url, storage, task_id = served_agent
    place, server = ("--storage", storage), ("--server", url)
    commands: list[tuple[str, ...]] = [
        ("card", url),
        ("card", url, "--json"),
        *(("send", url, word) for word in ("hello", "fail", "ask", "say")),
        ("send", url, "hello", "--json"),
        ("stream", url, "hello"),
        ("stream", url, "fail"),
        ("stream", url, "hello", "--json"),
        ("get", url, task_id),
        ("get", url, task_id, "--json"),
        ("get", url, f"unknown{EVIL}"),
        *(("tasks", "list", *where) for where in (place, server)),
        *(("tasks", "list", *where, "--json") for where in (place, server)),
        *(("tasks", "show", task_id, *where) for where in (place, server)),
        *(("tasks", "tail", task_id, "--after", "0", *where) for where in (place, server)),
        *(("tasks", "tail", task_id, "--after", "0", *where, "--json") for where in (place, server)),
        *(("webhooks", "list", *where) for where in (place, server)),
        ("dead", "list", *place),
    ]
    some = asyncio.Semaphore(4)

    async def check(command: tuple[str, ...]) -> None:
        async with some:
            text = await asyncio.to_thread(on_a_terminal, *command)
        assert text.strip(), command
        clean(text)

    await asyncio.gather(*map(check, commands))


async def test_no_text_in_a_state_store_controls_the_terminal(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    async with StateStore(url) as store:
        await store.save_memory_state(f"key {EVIL}", {"value": EVIL, f"name {EVIL}": 1})
    for command in (
        ("state", "show", f"key {EVIL}", "--storage", url),
        ("state", "show", f"unknown {EVIL}", "--storage", url),
        ("state", "sessions", "--storage", url),
        ("export", "--all", "--storage", url, "--output", "-"),
    ):
        clean(await asyncio.to_thread(on_a_terminal, *command))


async def test_json_keeps_its_values(served_agent: tuple[str, str, str]) -> None:
    """Control characters are escaped, and JSON parsers get the agent's original text."""
    url, _, task_id = served_agent
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "keelbolt", "get", url, task_id, "--json"],
        capture_output=True,
        check=True,
        timeout=60,
    )
    found: Any = json.loads(ran.stdout)
    texts = [part.get("text") for artifact in found["artifacts"] for part in artifact["parts"]]
    assert f"done {EVIL}" in texts


@pytest.mark.parametrize("formatter", [HumanLines(), JSONLines()])
def test_no_log_line_controls_the_terminal(formatter: logging.Formatter) -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    logger = logging.getLogger("keelbolt.tests.terminal")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        logger.warning("a caller said %s", EVIL)
        logger.warning("a caller said %(word)s", {"word": EVIL})
        try:
            int(EVIL)
        except ValueError:
            logger.exception("it failed")
    finally:
        logger.removeHandler(handler)
    clean(out.getvalue())


def test_every_command_prints_through_one_function() -> None:
    """click.echo, print and sys.stdout print text without escaping, so the commands don't use them."""
    wrong = []
    for path in sorted(Path(keelbolt.cli.__path__[0]).glob("*.py")):
        if path.name in ("output.py", "failure.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name in ("click.echo", "click.secho", "click.style", "print"):
                    wrong.append(f"{path.name}:{node.lineno} {name}")
    assert not wrong
