"""`keelbolt serve` as a real process: its printed commands work, it stops on request, and failures are explained."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx2
import pytest
from click.testing import CliRunner

from keelbolt.cli.loading import load_worker
from keelbolt.cli.main import main
from keelbolt.cli.serve import _card, _tell
from keelbolt.server import processes

ROOT = Path(__file__).parents[3]
KEELBOLT = [sys.executable, "-c", "from keelbolt.cli.main import main; main()"]
AGENT = '''
from keelbolt import AgentCardConfig, TaskContext

card = AgentCardConfig(name="Carded", description="It has a card.")
other = AgentCardConfig(name="Other", description="Another card.")
number = 7

async def parrot(ctx: TaskContext) -> None:
    """Says it again. And more."""
    await ctx.complete(ctx.user_text)
'''


class Serving:
    """A process that serves, its output, and its address."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        assert process.stdout is not None
        self.printed = _printed(process.stdout)
        found = re.match(r"The agent listens at (http://localhost:\d+)", self.printed)
        assert found, self.printed + self.log
        self.url = found[1]

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def pids(self) -> list[int]:
        """Return the pids of all processes that have started serving."""
        return [int(pid) for pid in re.findall(r"as process (\d+)", self.log)]

    def until(self, pattern: str, count: int = 1, seconds: float = 20) -> None:
        """Wait for this many occurrences in the log."""
        ends = time.monotonic() + seconds
        while len(re.findall(pattern, self.log)) < count:
            assert time.monotonic() < ends, self.log
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


def _printed(stdout: IO[str]) -> str:
    lines = []
    for line in stdout:
        lines.append(line)
        if "Ctrl-C" in line:
            break
    return "".join(lines)


@contextmanager
def serving(
    folder: Path, *arguments: str, cwd: Path | None = None, at: int = 0, **environment: str
) -> Iterator[Serving]:
    """Serve at a free port, or at this one, from this folder."""
    log = folder / "log.txt"
    storage = f"sqlite:///{folder}/agent.db"
    command = [*KEELBOLT, "serve", *arguments, "--port", str(at), "--storage", storage]
    with log.open("a") as stderr:
        process = subprocess.Popen(
            command,
            cwd=cwd or folder,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, **environment},
        )
    with process:
        try:
            yield Serving(process, log)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(20)


def refused(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the output of a start that fails."""
    return subprocess.run(
        [*KEELBOLT, "serve", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def send(url: str, message_id: str, text: str, *, now: bool = False) -> dict[str, Any]:
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    body = {"message": message, "configuration": {"returnImmediately": now}}
    answer = httpx2.post(f"{url}/message:send", json=body, headers={"Idempotency-Key": message_id}, timeout=20)
    task: dict[str, Any] = answer.json()["task"]
    return task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


# ---------------------------------------------------------------------------------------------------- printed lines


def test_the_printed_lines_can_be_pasted(tmp_path: Path) -> None:
    """Each line works in a shell, also a second time."""
    with serving(tmp_path, "examples.demo.guide:Guide", "--operators", "loopback", cwd=ROOT) as agent:
        lines = dict(re.findall(r"^  ([\w ]+): +(curl .*)$", agent.printed, re.MULTILINE))
        assert list(lines) == ["card", "send", "stream", "tasks", "system"]
        outputs: dict[str, str] = {}
        for times in (1, 2):
            outputs = {
                name: subprocess.run(["sh", "-c", f"{line} -s"], capture_output=True, text=True, check=True).stdout
                for name, line in lines.items()
            }
            assert json.loads(outputs["card"])["name"] == "Guide"
            task = json.loads(outputs["send"])["result"]["task"]
            assert task["artifacts"][0]["parts"][0]["text"] == "You said: Hello"
            assert "TASK_STATE_COMPLETED" in outputs["stream"]
            assert len(json.loads(outputs["tasks"])["tasks"]) == 2 * times  # without a key, each send is a task
            assert json.loads(outputs["system"])["engine"] == "sqlite"
        assert "Callers on this machine are operators" in agent.printed


def test_printed_lines_work_again_after_a_restart(capsys: pytest.CaptureFixture[str]) -> None:
    """The storage stores message ids, so every start prints new ones."""
    for _ in range(2):
        _tell("http://localhost:8000", "Hello", None, operators=False)
    assert len(set(re.findall(r'"messageId": "([^"]+)"', capsys.readouterr().out))) == 4


# --------------------------------------------------------------------------------------------------------- the card


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in this process, as if started in that folder."""
    (folder / "plain.py").write_text("from agent import parrot\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("agent", "plain"):  # another page of the docs or another test may have imported one
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in ("agent", "plain"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("reference", "card", "name", "found"),
    [
        ("agent:parrot", None, None, "Carded"),
        ("agent:parrot", "agent:other", None, "Other"),
        ("plain:parrot", None, None, "parrot"),
        ("plain:parrot", None, "Polly", "Polly"),
    ],
)
def test_the_card_is_that_of_the_module_or_generated(
    here: None, reference: str, card: str | None, name: str | None, found: str
) -> None:
    made = _card(reference, load_worker(reference), {"card": card, "name": name})
    assert made.name == found
    if reference == "plain:parrot":
        assert made.description == "Says it again. And more."
        assert made.capabilities.streaming


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["agent:nothing"], "agent has no nothing"),
        (["missing:parrot"], "no module missing"),
        (["agent:number"], "agent:number is not a worker"),
        (["agent:parrot", "--card", "agent:parrot"], "agent:parrot is not an AgentCardConfig"),
    ],
)
def test_a_wrong_name_is_reported_in_one_line(here: None, options: list[str], why: str) -> None:
    ran = CliRunner().invoke(main, ["serve", *options])
    assert ran.exit_code == 2
    [line] = ran.stderr.splitlines()
    assert line.startswith(f"error: {why}")


# ---------------------------------------------------------------------------------------------------- ports, storage


def test_a_port_in_use_is_reported_in_one_line(folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        ran = refused(folder, "agent:parrot", "--port", port)
    assert ran.returncode == 1
    assert ran.stderr == (
        f"error: port {port} of 127.0.0.1 can't be used: Address already in use; choose another port\n"
    )
    assert ran.stdout == ""


def test_an_invalid_port_is_refused(folder: Path) -> None:
    ran = refused(folder, "agent:parrot", "--port", "99999")
    assert ran.returncode == 2
    assert "99999 is not in the range" in ran.stderr


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_agent_that_can_not_start_reports_why_and_exits(folder: Path, processes: str) -> None:
    """Each process reports the cause once, without a traceback, before it prints that it listens."""
    ran = refused(
        folder, "agent:parrot", "--port", "0", "--storage", "sqlite:///none/agent.db", "--processes", processes
    )
    assert ran.returncode == 1
    assert "the agent did not start: the directory of 'agent.db' does not exist; create it first" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ""


# --------------------------------------------------------------------------------------------------------- processes


def test_several_processes_do_not_serve_from_memory(folder: Path) -> None:
    """Each would have its own tasks, so a client would not find its task in another process."""
    ran = refused(folder, "agent:parrot", "--port", "0", "--storage", "memory:", "--processes", "2")
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: memory can't be shared by several processes; use one process, or sqlite:///")


def test_several_processes_share_the_port_and_one_that_is_killed_is_replaced(folder: Path) -> None:
    with serving(folder, "agent:parrot", "--processes", "2", "--operators", "loopback") as agent:
        agent.until("as process", 2)
        parent, first = agent.process.pid, set(agent.pids)
        assert len(first | {parent}) == 3
        answered: set[str] = set()
        ends = time.monotonic() + 20
        while len(answered) < 2 and time.monotonic() < ends:  # one connection each: the OS chooses the process
            system = httpx2.get(f"{agent.url}/keelbolt/v1/system").json()
            answered.add(system["process"]["name"])
        assert len(answered) == 2

        task = send(agent.url, "1", "before")
        os.kill(min(first), signal.SIGKILL)
        agent.until("as process", 3)
        assert f"process {min(first)} exited with code -9; a new process replaces it" in agent.log
        assert send(agent.url, "1", "before")["id"] == task["id"]
        assert send(agent.url, "2", "after")["artifacts"][0]["parts"] == [{"text": "after"}]

        assert agent.stop() == 0
        for pid in set(agent.pids):
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_processes_whose_parent_is_killed_stop_and_release_their_tasks(tmp_path: Path) -> None:
    """Without the parent, no process forwards a stop signal; the port is free for the next start."""
    (tmp_path / "slow.py").write_text(SLOW)
    with serving(tmp_path, "slow:slow", "--processes", "2", KEELBOLT_DRAIN_SECONDS="0.5") as agent:
        agent.until("as process", 2)
        task = send(agent.url, "1", "long", now=True)
        agent.process.kill()
        agent.process.wait(20)
        agent.until("has stopped", 2)
        assert f"the parent process {agent.process.pid} has ended" in agent.log
    port = int(agent.url.rpartition(":")[2])
    with serving(tmp_path, "slow:slow", at=port, KEELBOLT_DRAIN_SECONDS="0.5") as agent:
        assert send(agent.url, "1", "long", now=True)["id"] == task["id"]


def test_a_stop_signal_during_a_fork_reaches_the_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new process stops before it serves: its parent's signal handler is not called in it."""
    fork, served = os.fork, os.pipe()

    def slow_fork() -> int:
        pid = fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGTERM)  # at once, as if the parent had sent it
        return pid

    monkeypatch.setattr(os, "fork", slow_fork)
    monkeypatch.setattr(processes, "_serve", lambda *_, **__: os.write(served[1], b"1"))
    before = {number: signal.getsignal(number) for number in processes.STOP_SIGNALS}
    pool: Any = processes._Pool(None, None, 1)  # type: ignore[arg-type]
    try:
        for number in processes.STOP_SIGNALS:
            signal.signal(number, pool._stop)
        pool._fork(lambda: None)
        pid, status = os.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    os.close(served[1])
    assert (os.read(served[0], 1), os.waitstatus_to_exitcode(status)) == (b"", -signal.SIGTERM)
    os.close(served[0])
    assert pid in pool._children
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(processes.STOP_SIGNALS)


def test_it_stops_in_time_with_a_stream_open_and_goes_on_when_it_is_started_again(tmp_path: Path) -> None:
    """The stream ends with a retry hint; the task is released and finished by the next process."""
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "count to 12"}]}
    with serving(tmp_path, "examples.demo.guide:Guide", cwd=ROOT, KEELBOLT_DRAIN_SECONDS="0.5") as agent:
        with httpx2.stream("POST", f"{agent.url}/message:stream", json={"message": message}, timeout=20) as answer:
            lines = answer.iter_lines()
            seen = [next(lines)]
            while "artifactUpdate" not in seen[-1]:
                seen.append(next(lines))
            began = time.monotonic()
            agent.process.send_signal(signal.SIGTERM)
            seen += list(lines)
        assert agent.process.wait(20) == 0
        assert time.monotonic() - began < 8
        assert "agent Guide has stopped" in agent.log
    assert [line for line in seen if line][-1] == "retry: 1000"
    task_id = json.loads(seen[1].removeprefix("data: "))["task"]["id"]
    last = [line for line in seen if line.startswith("id: ")][-1].removeprefix("id: ")

    with serving(tmp_path, "examples.demo.guide:Guide", cwd=ROOT) as agent:
        with httpx2.stream(
            "GET", f"{agent.url}/tasks/{task_id}:subscribe", headers={"Last-Event-ID": last}, timeout=20
        ) as answer:
            rest = [line.removeprefix("id: ") for line in answer.iter_lines() if line.startswith("id: ")]
        assert int(rest[0]) > int(last)
        task = httpx2.get(f"{agent.url}/tasks/{task_id}").json()
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        text = "".join(part["text"] for part in task["artifacts"][0]["parts"])
        assert text.split() == [str(n) for n in range(1, 13)]


SLOW = """
import asyncio

async def slow(ctx):
    await asyncio.sleep(1 if ctx.user_text == "short" else 60)
    await ctx.complete("done")
"""


def test_a_client_that_waits_gets_a_response_before_the_stop(tmp_path: Path) -> None:
    """The response has the ended task if it ends in time, else the current task, which other processes continue."""
    (tmp_path / "slow.py").write_text(SLOW)
    with ThreadPoolExecutor() as threads, serving(tmp_path, "slow:slow", KEELBOLT_DRAIN_SECONDS="2") as agent:
        waiting = {text: threads.submit(send, agent.url, text, text) for text in ("short", "long")}
        while len(httpx2.get(f"{agent.url}/tasks?status=TASK_STATE_WORKING").json()["tasks"]) < 2:
            time.sleep(0.02)
        began = time.monotonic()
        assert agent.stop() == 0
        assert time.monotonic() - began < 10
        assert waiting["short"].result()["status"]["state"] == "TASK_STATE_COMPLETED"
        assert waiting["long"].result()["status"]["state"] in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED")
        assert "Traceback" not in agent.log


def test_a_second_interrupt_ends_it_at_once(tmp_path: Path) -> None:
    """There is no traceback; the task is released and does not wait for its lease to expire."""
    (tmp_path / "slow.py").write_text(SLOW)
    with serving(tmp_path, "slow:slow", KEELBOLT_DRAIN_SECONDS="60") as agent:
        send(agent.url, "1", "long", now=True)
        agent.process.send_signal(signal.SIGINT)
        agent.until("is stopping")
        assert agent.stop(signal.SIGINT) == 0
        assert "is released" in agent.log
        assert "Traceback" not in agent.log


# -------------------------------------------------------------------------------------------------------------- logs


def _card_url(agent: Serving) -> str:
    """Return the address in the card for a client that claims a proxy, which is not trusted, even on loopback."""
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}
    card = httpx2.get(f"{agent.url}/.well-known/agent-card.json", headers=forwarded).json()
    return str(card["url"])


def test_logs_are_json_on_request_and_have_operations_at_debug(folder: Path) -> None:
    with serving(folder, "agent:parrot", "--log-format", "json", "--log-level", "debug", "--cors", "*") as agent:
        send(agent.url, "1", "a secret of the user")
        assert _card_url(agent).startswith("http://localhost:")
        assert agent.stop() == 0
        lines = [json.loads(line) for line in agent.log.splitlines()]
    logged = [(line["level"], line["message"]) for line in lines]
    assert ("warning", "CORS: pages of every origin may call this agent") in logged
    assert ("debug", "SendMessage in A2A 1.0") in logged
    assert ("info", f"agent Carded serves at {agent.url}, on sqlite, as process {agent.process.pid}") in logged
    assert logged[-1] == ("info", "agent Carded has stopped")
    assert "a secret of the user" not in agent.log


def test_options_take_effect(folder: Path) -> None:
    with serving(folder, "agent:parrot", "--metrics", "--url", "https://agent.example/base/") as agent:
        card = httpx2.get(f"{agent.url}/.well-known/agent-card.json").json()
        assert (card["name"], card["url"]) == ("Carded", "https://agent.example/base/")
        assert "keelbolt_uptime_seconds" in httpx2.get(f"{agent.url}/metrics").text
        assert agent.stop(signal.SIGINT) == 0


def test_variables_take_effect(folder: Path) -> None:
    """The variables that `serve` shares with `worker` take effect, including retention."""
    with serving(
        folder,
        "agent:parrot",
        "--operators",
        "loopback",
        KEELBOLT_RETAIN="completed=30d log=1h",
        KEELBOLT_CONCURRENCY="7",
        KEELBOLT_LEASE_SECONDS="9",
        KEELBOLT_LOG_FORMAT="json",
        KEELBOLT_LOG_LEVEL="debug",
    ) as agent:
        system = httpx2.get(f"{agent.url}/keelbolt/v1/system").json()
        assert agent.stop() == 0
        assert json.loads(agent.log.splitlines()[0])["level"]
    assert (system["retention"]["completed"], system["retention"]["log"]) == (30 * 86400, 3600)
    assert (system["process"]["concurrency"], system["process"]["leaseSeconds"]) == (7, 9)
