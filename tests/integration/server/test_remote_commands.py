"""The admin commands on a running agent: --server instead of --storage."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
import uvicorn
from click.testing import CliRunner

from keelbolt.auth import ANONYMOUS
from keelbolt.cli.main import main
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.protocol.requests import PushConfig
from keelbolt.protocol.types import Message, Part, Role
from keelbolt.protocol.versions import Version
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import Sent, TaskContext


async def worker(ctx: TaskContext) -> None:
    match ctx.user_text:
        case "ask":
            await ctx.request_input("For what time?")
        case "fail":
            await ctx.fail("no")
        case "listen":
            async for heard in ctx.inbox:
                await ctx.complete(f"{heard.kind} {heard.payload} {heard.reason}")
                break
        case _:
            await ctx.complete("done")


class Agent:
    """An agent in a thread of its own."""

    def __init__(self) -> None:
        can = CapabilitiesConfig(streaming=True, push_notifications=True)
        card = AgentCardConfig(name="A", description="d", capabilities=can)
        settings = ServerSettings.of({}, webhook_loopback=True)
        self.server = A2AServer(worker=worker, agent_card=card, storage="memory:", settings=settings)
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
def agent() -> Iterator[Agent]:
    agent = Agent()
    agent.thread.start()
    assert agent.ready.wait(20)
    yield agent
    agent.uvicorn.should_exit = True
    agent.thread.join(20)


def run(agent: Agent, *words: str, code: int = 0) -> Any:
    answer = CliRunner().invoke(main, [*words, "--server", agent.url, "--json"])
    assert answer.exit_code == code, answer.output
    return json.loads(answer.output) if code == 0 else answer.output


def test_the_commands_work_on_a_running_agent(agent: Agent) -> None:
    """What they say about a storage they say about an agent."""
    asked, failed, done = (agent.send(text) for text in ("ask", "fail", "other"))
    listed = run(agent, "tasks", "list")
    assert {task["id"] for task in listed["tasks"]} == {asked, failed, done}
    assert run(agent, "tasks", "list", "--state", "failed")["tasks"][0]["id"] == failed
    assert run(agent, "tasks", "show", asked)["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert run(agent, "tasks", "cancel", asked, "--reason", "enough")["status"]["state"] == "TASK_STATE_CANCELED"
    again = run(agent, "tasks", "requeue", failed)["taskId"]
    assert again not in (asked, failed, done)
    assert run(agent, "tasks", "erase", done) == {"erased": 1}
    assert run(agent, "dead", "list")["dead"] == []


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
    assert "--payload is JSON" in run(agent, "tasks", "steer", task, "inject", "--payload", "{", code=2)


def test_contexts_are_erased_through_the_agent(agent: Agent) -> None:
    agent.send("one", context="room")
    agent.send("two", context="room")
    assert run(agent, "tasks", "erase", "--context", "room") == {"erased": 2}
    assert "name tasks or --context" in run(agent, "tasks", "erase", code=2)


def test_dead_letters_through_the_agent(agent: Agent) -> None:
    failed = agent.send("fail")
    [one] = run(agent, "dead", "requeue", failed)["requeued"]
    assert one["old"] == failed
    assert "Task not found" in run(agent, "dead", "drop", failed, code=2)  # it was not given up
    for command in ("requeue", "drop"):
        assert "--all is for a storage" in run(agent, "dead", command, "--all", code=2)


def test_webhooks_through_the_agent(agent: Agent) -> None:
    tasks = [agent.send(f"task {number}") for number in range(2)]
    push, scope = agent.server.routes.service.push, agent.server.routes.service.engine.tasks.scope(ANONYMOUS)
    for task in tasks:
        agent.do(push.create(scope, task, PushConfig(id="mine", url="http://127.0.0.1:9/"), Version.v1_0))
    listed = run(agent, "webhooks", "list")
    assert {hook["taskId"] for hook in listed["webhooks"]} == set(tasks)
    assert [hook["id"] for hook in run(agent, "webhooks", "list", tasks[0])["webhooks"]] == ["mine"]
    assert run(agent, "webhooks", "list", "--failed")["webhooks"] == []
    assert run(agent, "webhooks", "replay", tasks[0], "mine", "--after", "0") == {
        "replayed": [{"task": tasks[0], "config": "mine"}]
    }
    assert run(agent, "webhooks", "replay", "--failed") == {"replayed": []}
    assert "name a task, or --failed" in run(agent, "webhooks", "replay", code=2)
    assert "--all is for a storage" in run(agent, "webhooks", "list", "--all", code=2)


def test_a_task_is_followed_through_the_agent(agent: Agent) -> None:
    done = agent.send("other")
    answer = CliRunner().invoke(main, ["tasks", "tail", done, "--server", agent.url, "--after", "0", "--json"])
    lines = [json.loads(line) for line in answer.output.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["data"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_an_error_of_the_server_is_told_in_its_words(agent: Agent) -> None:
    assert "Task not found" in run(agent, "tasks", "show", "nothing", code=2)


def test_neither_storage_nor_server_is_a_mistake_that_says_what_to_do() -> None:
    answer = CliRunner().invoke(main, ["tasks", "list"], env={"KEELBOLT_STORAGE": None, "KEELBOLT_SERVER": None})
    assert answer.exit_code == 2
    assert "--storage URL, or --server URL" in answer.output


@pytest.mark.parametrize(
    ("url", "words"),
    [("http://127.0.0.1:9", "can't be reached"), ("localhost:9", "--server: the URL of an agent begins with")],
)
def test_a_server_that_is_not_there_is_told_in_one_line(url: str, words: str) -> None:
    answer = CliRunner().invoke(main, ["tasks", "list", "--server", url])
    assert answer.exit_code == 2
    assert words in answer.output
