"""The admin commands work on a running agent (--server) as on its storage (--storage), and print the same."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
import uvicorn
from click.testing import CliRunner

from keelbolt.auth import ANONYMOUS, Authenticator, JWTAuthenticator
from keelbolt.cli.main import main
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.protocol.requests import PushConfig
from keelbolt.protocol.types import Message, Part, Role
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.state import StateStore
from keelbolt.tasks import Sent, TaskContext


async def worker(ctx: TaskContext) -> None:
    match ctx.user_text:
        case "ask":
            await ctx.request_input("For what time?")
        case "fail":
            await ctx.fail("no")
        case "listen":
            async for event in ctx.inbox:
                await ctx.complete(f"{event.kind} {event.payload} {event.reason}")
                break
        case _:
            await ctx.complete("done")


class Agent:
    """An agent in its own thread."""

    def __init__(self, storage: str, auth: Authenticator | None = None) -> None:
        self.storage = storage
        can = CapabilitiesConfig(streaming=True, push_notifications=True)
        card = AgentCardConfig(name="A", description="d", capabilities=can)
        settings = ServerSettings.of({}, webhook_loopback=True, operators="loopback")
        self.server = A2AServer(worker=worker, agent_card=card, storage=storage, settings=settings, auth=auth)
        self.uvicorn = uvicorn.Server(uvicorn.Config(self.server.app, port=0, log_level="error", ws="none"))
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.ready = threading.Event()

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        serving = asyncio.create_task(self.uvicorn.serve())
        while not self.uvicorn.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        self.ready.set()
        await serving

    @contextmanager
    def running(self) -> Iterator[None]:
        self.thread.start()
        assert self.ready.wait(20)
        try:
            yield
        finally:
            self.uvicorn.should_exit = True
            self.thread.join(20)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.uvicorn.servers[0].sockets[0].getsockname()[1]}"

    def send(self, text: str, *, context: str | None = None, wait: bool = True) -> str:
        async def sent() -> str:
            tasks = self.server.routes.service.tasks
            message = Message(message_id=text, role=Role.user, parts=[Part(text=text)], context_id=context)
            taken = await tasks.send(message)
            return (await tasks.settled(taken)).task_id if wait else taken.task.task_id

        task_id: str = self.do(sent())
        return task_id

    def do(self, what: Coroutine[Any, Any, Any]) -> Any:
        """Run this in the loop of the agent."""
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(20)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(f"sqlite:///{tmp_path}/agent.db")
    with agent.running():
        yield agent


def run(agent: Agent, *words: str, code: int = 0, way: str = "--server") -> Any:
    where = agent.url if way == "--server" else agent.storage
    answer = CliRunner().invoke(main, [*words, way, where, "--json"])
    assert answer.exit_code == code, answer.output
    return json.loads(answer.stdout) if code == 0 else answer.output


def both(agent: Agent, *words: str) -> Any:
    """Return the command's output for the agent and for its storage."""
    printed = run(agent, *words)
    assert run(agent, *words, way="--storage") == printed
    return printed


WAYS = pytest.mark.parametrize("way", ["--server", "--storage"])


@WAYS
def test_the_commands_work_both_ways(agent: Agent, way: str) -> None:
    asked, failed, done = (agent.send(text) for text in ("ask", "fail", "other"))
    ids = {asked, failed, done}
    assert {task["id"] for task in both(agent, "tasks", "list")["tasks"]} == ids
    assert {task["id"] for task in both(agent, "tasks", "list", "--all")["tasks"]} == ids
    listed = [
        [task["id"] for task in both(agent, "tasks", "list", "--sort", sort)["tasks"]]
        for sort in ("-updated", "updated")
    ]
    assert listed[0] == listed[1][::-1]
    assert both(agent, "tasks", "list", "--state", "failed")["tasks"][0]["said"] == "fail"
    assert both(agent, "tasks", "show", asked)["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert both(agent, "tasks", "list", "--owner", "ada")["tasks"] == []
    assert both(agent, "turns", "gates") == {"gates": []}
    assert both(agent, "sweep", "--dry-run", "--retain", "completed=0s")["removed"] == {"tasks": {"tasks": 1}}
    assert both(agent, "erase", "--task", done, "--dry-run")["dryRun"]
    canceled = run(agent, "tasks", "cancel", asked, "--reason", "enough", way=way)
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    again = run(agent, "tasks", "requeue", failed, way=way)["taskId"]
    assert again not in ids
    assert run(agent, "tasks", "erase", done, way=way) == {"erased": 1}
    assert "Task not found" in run(agent, "tasks", "show", done, code=3, way=way)
    assert both(agent, "dead", "list", "--all") == {"dead": [], "more": False}
    sent = run(agent, "tasks", "send", "--text", "hello", "--owner", "ada", "--wait", "20", way=way)
    assert sent["status"]["state"] == "TASK_STATE_COMPLETED"
    assert run(agent, "erase", "--user", "ada", "--yes", way=way)["erased"]["tasks"] == 1
    run(agent, "erase", "--user", "ada", "--yes", way=way, code=3)
    assert run(agent, "tasks", "erase", "--everything", "--yes", way=way)["erased"] == 3


def test_a_task_is_steered_and_forked_through_the_agent(agent: Agent) -> None:
    task = agent.send("listen", wait=False)
    words = ("inject", "--payload", '{"note": 7}', "--reason", "late")
    assert run(agent, "tasks", "steer", task, *words) == {"taskId": task, "kind": "inject"}
    tasks = agent.server.routes.service.tasks
    agent.do(tasks.settled(Sent(agent.do(tasks.load(task)))))
    shown = run(agent, "tasks", "show", task)["task"]
    assert shown["artifacts"][0]["parts"] == [{"text": "inject {'note': 7} late"}]
    forked = run(agent, "tasks", "fork", task, "--seq", "1")["taskId"]
    assert run(agent, "tasks", "show", forked)["task"]["metadata"]["forkedFrom"] == {"taskId": task, "seq": 1}
    assert "--payload must be JSON" in run(agent, "tasks", "steer", task, "inject", "--payload", "{", code=2)


def test_data_of_any_face_is_listed_shown_and_counted(agent: Agent) -> None:
    """One command covers tasks of the server and sessions of a state store in the same storage."""
    task = agent.send("other", context="room")

    async def keep() -> None:
        async with StateStore(agent.storage) as store:
            await store.save_planner_state("pause-1", {"reason": "await_input"})

    asyncio.run(keep())
    families = {each["family"]: each for each in both(agent, "data", "list")["families"]}
    assert {"tasks"} <= families.keys()
    [record] = both(agent, "data", "list", "tasks")["records"]
    assert (record["id"], record["subject"]) == (task, {"kind": "task", "id": task})
    assert both(agent, "data", "show", record["ref"])["id"] == task
    assert both(agent, "data", "show", "--task", task)["found"][0]["record"]["id"] == task
    assert both(agent, "data", "count", "tasks")["counts"][0]["count"] == 1
    assert any(each["count"] for each in both(agent, "data", "count", "--context", "room")["counts"])
    assert "tasks" in CliRunner().invoke(main, ["data", "count", "--storage", agent.storage]).stdout
    for way in ("--server", "--storage"):
        assert "there is no such record" in run(agent, "data", "show", "nothing", code=3, way=way)
        assert "there is no session 'x'" in run(agent, "data", "show", "--session", "x", code=3, way=way)
        assert "there is no such family; there are " in run(agent, "data", "list", "x", code=3, way=way)
        run(agent, "data", "show", code=2, way=way)


def test_contexts_are_erased_through_the_agent(agent: Agent) -> None:
    agent.send("one", context="room")
    agent.send("two", context="room")
    assert run(agent, "tasks", "erase", "--context", "room") == {"erased": 2}
    assert "name tasks, or use --context" in run(agent, "tasks", "erase", code=2)


def test_dead_letters_through_the_agent(agent: Agent) -> None:
    failed = agent.send("fail")
    [one] = run(agent, "dead", "requeue", failed)["requeued"]
    assert one["taskId"] == failed
    assert json.loads(run(agent, "dead", "drop", failed, code=3)) == {"dropped": 0}  # the task is not a dead letter
    assert run(agent, "dead", "requeue", "--all") == {"requeued": [], "kept": []}
    assert run(agent, "dead", "drop", "--all") == {"dropped": 0}


def test_webhooks_through_the_agent(agent: Agent) -> None:
    tasks = [agent.send(f"task {number}") for number in range(2)]
    push, scope = agent.server.routes.service.push, agent.server.routes.service.engine.tasks.scope(ANONYMOUS)
    for task in tasks:
        agent.do(push.create(scope, task, PushConfig(id="mine", url="http://127.0.0.1:9/"), ProtocolVersion.v1_0))
    listed = both(agent, "webhooks", "list")
    assert both(agent, "webhooks", "list", "--all") == listed
    assert {hook["taskId"] for hook in listed["webhooks"]} == set(tasks)
    assert [hook["id"] for hook in run(agent, "webhooks", "list", tasks[0])["webhooks"]] == ["mine"]
    assert run(agent, "webhooks", "list", "--failed")["webhooks"] == []
    assert run(agent, "webhooks", "replay", tasks[0], "mine", "--after", "0") == {
        "replayed": [{"taskId": tasks[0], "configId": "mine"}]
    }
    assert run(agent, "webhooks", "replay", "--failed") == {"replayed": []}
    assert "name a task or use --failed" in run(agent, "webhooks", "replay", code=2)


def test_a_task_is_followed_through_the_agent(agent: Agent) -> None:
    done = agent.send("other")
    answer = CliRunner().invoke(main, ["tasks", "tail", done, "--server", agent.url, "--after", "0", "--json"])
    lines = [json.loads(line) for line in answer.output.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["data"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_an_error_of_the_server_is_printed_unchanged(agent: Agent) -> None:
    assert "Task not found" in run(agent, "tasks", "show", "nothing", code=3)


def test_without_storage_and_server_the_error_says_what_to_do() -> None:
    answer = CliRunner().invoke(main, ["tasks", "list"], env={"KEELBOLT_STORAGE": None, "KEELBOLT_SERVER": None})
    assert answer.exit_code == 2
    assert "--storage URL, or --server URL" in answer.output


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("http://127.0.0.1:9", 1, "http://127.0.0.1:9: connection refused. Is the agent running"),
        ("http://no-such-host.invalid", 1, "http://no-such-host.invalid: the name of the host is not known"),
        ("localhost:9", 2, "the URL of an agent must begin with"),
    ],
)
def test_an_unreachable_server_is_reported_in_one_line(url: str, code: int, words: str) -> None:
    answer = CliRunner().invoke(main, ["tasks", "list", "--server", url])
    assert answer.exit_code == code
    assert words in answer.output


def test_an_agent_that_requires_a_token_gets_a_hint(tmp_path: Path) -> None:
    """The message names the cause, also for TLS that the agent does not support."""
    key = "0123456789abcdef0123456789abcdef"
    agent = Agent(f"sqlite:///{tmp_path}/agent.db", auth=JWTAuthenticator(key))
    with agent.running():
        refused = CliRunner().invoke(main, ["tasks", "list", "--server", agent.url])
        assert (refused.exit_code, "--token or KEELBOLT_TOKEN" in refused.output) == (3, True), refused.output
        token = jwt.encode({"sub": "ada", "exp": 2**32}, key)
        mine = ["--server", agent.url, "--token", token]
        assert CliRunner().invoke(main, ["tasks", "list", *mine]).exit_code == 0
        everyone = CliRunner().invoke(main, ["tasks", "list", "--all", *mine])
        assert (everyone.exit_code, "only operators" in everyone.output) == (3, True), everyone.output
        tls = CliRunner().invoke(main, ["tasks", "list", "--server", agent.url.replace("http:", "https:")])
        assert (tls.exit_code, "TLS" in tls.output) == (1, True), tls.output


def test_an_interrupted_command_closes_its_storage(tmp_path: Path) -> None:
    """Ctrl-C ends `tasks tail` without a traceback."""
    url = f"sqlite:///{tmp_path}/agent.db"
    task = json.loads(CliRunner().invoke(main, ["tasks", "send", "--text", "x", "--storage", url, "--json"]).stdout)
    command = [sys.executable, "-m", "keelbolt", "tasks", "tail", task["id"], "--storage", url, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["snapshot"]["id"] == task["id"]
        tail.send_signal(signal.SIGINT)
        _, errors = tail.communicate(timeout=30)
    assert (tail.returncode, errors) == (0, "")
