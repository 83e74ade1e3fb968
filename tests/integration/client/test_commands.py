"""`keelbolt card|send|stream|get|cancel`, in this process, against a real agent."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

from keelbolt.cli.agents import _wait
from keelbolt.cli.main import main
from keelbolt.client import A2AClient, Task, TaskState
from tests.integration.client.bad_agent import CARD_PATH, Asked, bad_agent, events, result, task
from tests.integration.client.serving import our_agent

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url() -> AsyncIterator[str]:
    async with our_agent() as url:
        yield url


async def keelbolt(*words: str, stdin: str | None = None) -> Result:
    """Run a command in a thread, because it starts an event loop."""
    return await asyncio.to_thread(CliRunner().invoke, main, words, input=stdin)


async def test_card(url: str) -> None:
    shown = await keelbolt("card", url)
    assert shown.exit_code == 0
    assert "Echo 1.0.0" in shown.stdout
    assert "JSONRPC 1.0, HTTP+JSON 1.0" in shown.stdout
    assert json.loads((await keelbolt("card", url, "--json")).stdout)["name"] == "Echo"
    assert (await keelbolt("card", url, "--extended")).exit_code == 3


async def test_send_get_and_cancel(url: str) -> None:
    sent = await keelbolt("send", url, "Hello")
    assert (sent.exit_code, sent.stdout) == (0, "You said: Hello\n")
    assert "completed" in sent.stderr
    assert (await keelbolt("send", url, "-", stdin="piped")).stdout == "You said: piped\n"
    assert (await keelbolt("send", url, "fail")).exit_code == 1
    made = json.loads((await keelbolt("send", url, "wait", "--no-wait", "--json")).stdout)["task"]
    assert json.loads((await keelbolt("get", url, made["id"], "--json")).stdout)["id"] == made["id"]
    assert "canceled" in (await keelbolt("cancel", url, made["id"])).stdout
    missing = await keelbolt("get", url, "unknown")
    assert (missing.exit_code, missing.stdout) == (3, "")
    assert missing.stderr.startswith("error: ")


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("protocol", ["1.0", "0.3"])
async def test_stream(url: str, binding: str, protocol: str) -> None:
    spoken = ("--binding", binding, "--protocol", protocol)
    shown = await keelbolt("stream", url, "stream 5", *spoken)
    assert (shown.exit_code, shown.stdout) == (0, "0 1 2 3 4 \n")
    lines = (await keelbolt("stream", url, "stream 2", "--json", *spoken)).stdout.splitlines()
    values = [json.loads(line) for line in lines]
    assert values[0]["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert values[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert not any(value["snapshot"] for value in values)


async def test_a_question_says_how_to_answer(url: str) -> None:
    asked = await keelbolt("stream", url, "ask me")
    assert asked.stdout == "Which one?\n"
    task_id = asked.stderr.split("--task ")[1].split()[0]
    assert (await keelbolt("send", url, "blue", "--task", task_id)).stdout == "You said: blue\n"


async def test_text_of_an_agent_does_not_control_the_terminal() -> None:
    async with bad_agent() as agent:
        evil = {"parts": [{"text": "a\x1b]0;title\x07b"}], "messageId": "m", "role": "ROLE_AGENT"}
        agent.calls[:] = [result({"message": evil}), events((None, {"message": evil}))]
        for command in ("send", "stream"):
            shown = await keelbolt(command, agent.url, "Hi", "--token", "secret", "--header", "X-Key: k")
            assert shown.exit_code == 0
            assert "\x1b" not in shown.stdout
            assert "\x07" not in shown.stdout
        assert {each.headers["authorization"] for each in agent.asked} == {"Bearer secret"}
        assert {each.headers["x-key"] for each in agent.asked} == {"k"}


async def test_a_stream_reports_reconnects(caplog: pytest.LogCaptureFixture) -> None:
    async with bad_agent() as agent:
        done = task("COMPLETED", artifacts=[{"artifactId": "a", "parts": [{"text": "all of it"}]}])
        chunk = {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"text": "all "}]}}
        agent.calls[:] = [events((1, task()), (2, {"artifactUpdate": chunk})), events((9, done))]
        shown = await keelbolt("stream", agent.url, "Hi")
        chunk["artifact"] = {"artifactId": "a", "parts": [{"text": "replaced"}]}
        agent.calls[:] = [events((1, task()), (2, {"artifactUpdate": chunk})), events((9, done))]
        replaced = await keelbolt("stream", agent.url, "Hi")
    assert shown.stdout == "all \nof it\n"
    assert "connecting again" in shown.stderr
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert not any("reconnecting" in words for words in warned)  # the message would be printed twice
    assert "the current state of the task" not in shown.stderr  # the current state begins with the printed text
    assert replaced.stdout == "replaced\nall of it\n"
    assert "the current state of the task" in replaced.stderr


async def test_the_exit_code_shows_the_end_of_the_task() -> None:
    async with bad_agent() as agent:
        for state, code in (("COMPLETED", 0), ("FAILED", 1), ("CANCELED", 1), ("REJECTED", 3), ("INPUT_REQUIRED", 4)):
            agent.calls[:] = [result(task(state)), events((1, task("SUBMITTED")), (2, task(state)))]
            assert (await keelbolt("send", agent.url, "Hi")).exit_code == code
            assert (await keelbolt("stream", agent.url, "Hi")).exit_code == code
        agent.calls[:] = [result(task("WORKING"))] + [result(task("WORKING")["task"])] * 20
        unfinished = await keelbolt("send", agent.url, "Hi", "--wait", "0.3")
        assert (unfinished.exit_code, "working" in unfinished.stderr) == (4, True)
        agent.calls[:] = [result(task("WORKING"))]
        assert (await keelbolt("send", agent.url, "Hi", "--no-wait")).exit_code == 0


async def test_the_id_is_printed_before_the_response_and_ctrl_c_prints_how_to_follow(url: str) -> None:
    """The command runs in its own process: its output while it waits, and after SIGINT."""
    command = [sys.executable, "-m", "keelbolt", "send", url, "wait"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    assert process.stderr is not None
    async with asyncio.timeout(60):
        first = (await process.stderr.readline()).decode()
        assert "is sent; waiting for the result" in first
        task_id = first.split()[1]
        assert (await keelbolt("get", url, task_id)).exit_code == 0
        process.send_signal(signal.SIGINT)
        _, rest = await process.communicate()
    assert process.returncode == 4
    assert f"keelbolt get {url} {task_id}" in rest.decode()
    assert "canceled" in (await keelbolt("cancel", url, task_id)).stdout


async def test_wait_is_a_limit(url: str) -> None:
    left = await keelbolt("send", url, "wait", "--wait", "0.2")
    assert left.exit_code == 4
    task_id = left.stderr.split()[1]
    assert f"keelbolt cancel {url} {task_id}" in left.stderr
    assert "canceled" in (await keelbolt("cancel", url, task_id)).stdout


async def test_an_agent_with_a_short_outage_is_retried() -> None:
    async with bad_agent() as agent:

        async def completed(asked: Asked, writer: asyncio.StreamWriter) -> None:
            writer.write(result(task("COMPLETED")["task"], json.loads(asked.body)["id"]))

        agent.calls[:] = [result(task("WORKING")), b"", b"", completed]
        done = await keelbolt("send", agent.url, "Hi")
    assert done.exit_code == 0


async def test_data_and_files(url: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_bytes(b"plain")
    words = ("--data", '{"a": 1}', "--data", "-", "--file", str(notes), "--json")
    for command in ("send", "stream"):
        done = await keelbolt(command, url, "Hello", *words, stdin="[2]")
        assert done.exit_code == 0, done.output
        shown = json.loads(done.stdout.splitlines()[0])["task"]
        found = json.loads((await keelbolt("get", url, shown["id"], "--json")).stdout)["history"][0]["parts"]
        assert [part.get("text") for part in found] == ["Hello", None, None, None]
        assert [part.get("data") for part in found[1:3]] == [{"a": 1}, [2]]
        assert (found[3]["filename"], found[3]["mediaType"], found[3]["raw"]) == ("notes.txt", "text/plain", "cGxhaW4=")
    assert (await keelbolt("send", url, "--data", "7")).exit_code == 0  # text is optional
    for wrong, expected in (
        ((), "nothing to send"),
        (("--data", "{"), "is not JSON"),
        (("--file", str(tmp_path / "none")), "No such file"),
        (("--file", "/dev/zero"), "more than 256 MiB"),
    ):
        refused = await keelbolt("send", url, *wrong)
        assert refused.exit_code == 2
        assert expected in refused.stderr


async def test_a_card_for_another_origin_needs_a_trusted_origin(url: str) -> None:
    """localhost and 127.0.0.1 are one origin; another port is another one."""
    async with bad_agent() as agent:
        card = await keelbolt("card", url, "--json")
        interfaces = json.loads(card.stdout)["supportedInterfaces"]
        agent.answers[CARD_PATH] = agent.card(supportedInterfaces=interfaces)
        refused = await keelbolt("send", agent.url, "Hello", "--token", "t")
        assert refused.exit_code == 1
        assert url.replace("127.0.0.1", "localhost") in refused.stderr
        trusted = await keelbolt("send", agent.url, "Hello", "--token", "t", "--trusted-origin", url)
        assert (trusted.exit_code, trusted.stdout) == (0, "You said: Hello\n")
        named = [{**each, "url": each["url"].replace("127.0.0.1", "localhost")} for each in interfaces]
        agent.answers[CARD_PATH] = agent.card(supportedInterfaces=named)
        same = await keelbolt("send", agent.url, "Hello", "--token", "t", "--trusted-origin", url)
        assert (same.exit_code, same.stdout) == (0, "You said: Hello\n")


@pytest.mark.parametrize(
    "words", [("card", "ftp://x"), ("send", "http://u:p@x", "Hi"), ("get", "http://x", "t", "--header", "nonsense")]
)
async def test_wrong_arguments(words: tuple[str, ...]) -> None:
    refused = await keelbolt(*words)
    assert refused.exit_code == 2
    assert "Invalid value" in refused.stderr


async def test_send_keeps_waiting_while_the_agent_is_busy() -> None:
    """The message was accepted: a limit on requests must not end the wait for its task."""
    busy = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"

    async def answered(asked: Asked, writer: asyncio.StreamWriter) -> None:
        over = task("COMPLETED")["task"]
        writer.write(busy if len(agent.posts) < 4 else result(over, asked.json["id"]))
        await writer.drain()

    async with bad_agent() as agent:
        agent.calls[:] = [answered]
        async with A2AClient(agent.url, retry_seconds=0.0) as client:
            found = await _wait(client, Task.model_validate(task("WORKING")["task"]), 30)
    assert found.status.state is TaskState.completed
