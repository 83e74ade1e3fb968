"""A module that calls another agent: once per turn, for its caller, within its trace."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from apcore import Context

from keelbolt.apcore.delegation import agent
from keelbolt.errors import InvalidValue
from keelbolt.protocol.types import Task
from keelbolt.tasks.record import REQUEST_METADATA
from keelbolt.tasks.settings import TaskSettings
from tests.integration.apcore.calling import message, output, state, task_of
from tests.integration.apcore.modules import Anything, Echo, Sleeper, Whoami, agent_of, executor_of, registry_of
from tests.integration.apcore.test_execution import ADAM, Names
from tests.integration.server.asgi import call
from tests.integration.server.serving import served


class Asks:
    """Asks another agent, then waits on request."""

    input_schema = Anything
    output_schema = Anything
    description = "Asks another agent"

    def __init__(self, url: str = "") -> None:
        self.url = url
        self.asked = 0
        self.hangs = False
        self.hanging = asyncio.Event()

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        self.asked += 1
        task = await agent(context, self.url).send({"text": "hello"}, skill_id="echo")
        assert isinstance(task, Task)
        if self.hangs:
            self.hanging.set()
            await asyncio.sleep(60)
        return {"answer": task.artifacts[0].parts[0].data, "task": task.id}


class AsksInAThread(Asks):
    def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:  # type: ignore[override]
        task = agent(context, self.url).send_sync({"text": "from a thread"}, skill_id="echo")
        assert isinstance(task, Task)
        return {"answer": task.artifacts[0].parts[0].data}


@pytest.mark.parametrize("kind", [Asks, AsksInAThread])
async def test_a_module_asks_another_agent(kind: Any) -> None:
    remote = agent_of(executor_of(registry_of(echo=Echo(), whoami=Whoami())))
    async with served(remote) as url, agent_of(executor_of(registry_of(asks=kind(url)))) as server:
        found = output(await task_of(server.app, {}))
        assert found["answer"]["text"] in ("hello", "from a thread")


async def test_the_other_agent_gets_the_identity() -> None:
    remote = agent_of(executor_of(registry_of(echo=Echo())))
    async with served(remote) as url:
        async with agent_of(executor_of(registry_of(asks=Asks(url))), auth=Names()) as server:
            reply = await call(server.app, "SendMessage", {"message": message({})}, headers=ADAM)
            asked = output(reply.json["result"]["task"])["task"]
        engine = remote.routes.service.engine
        record = (await engine.tasks.load(asked)).record
        assert record.turn.request[REQUEST_METADATA]["onBehalfOf"] == {"id": "adam", "type": "user", "roles": ["adder"]}


async def test_a_recorded_answer_is_not_requested_again(tmp_path: Path) -> None:
    """The process ends after the other agent responded: the next process uses the recorded response."""
    storage = f"sqlite:///{tmp_path}/agent.db"
    quick = TaskSettings.of(drain_seconds=0.1)
    remote = agent_of(executor_of(registry_of(echo=Echo())))
    async with served(remote) as url:
        asks = Asks(url)
        asks.hangs = True
        async with agent_of(executor_of(registry_of(asks=asks)), storage=storage, task_settings=quick) as server:
            params = {"message": message({}, messageId="m"), "configuration": {"returnImmediately": True}}
            task = (await call(server.app, "SendMessage", params, headers=[("idempotency-key", "m")])).json["result"][
                "task"
            ]
            await asyncio.wait_for(asks.hanging.wait(), 20)
        page = (await call(remote.app, "ListTasks", {})).json["result"]
        assert len(page["tasks"]) == 1
    again = Asks(url)  # no agent listens at this URL now
    async with agent_of(executor_of(registry_of(asks=again)), storage=storage) as server:
        done = await task_of(server.app, {}, messageId="m")
        assert done["id"] == task["id"]
        assert output(done)["answer"] == {"text": "hello"}
    assert (asks.asked, again.asked) == (1, 1)


async def test_an_interrupted_request_is_repeated_with_the_same_id(tmp_path: Path) -> None:
    """The other agent recognizes the id, and runs one task."""
    storage = f"sqlite:///{tmp_path}/agent.db"
    quick = TaskSettings.of(drain_seconds=0.1)
    sleeper = Sleeper()
    remote = agent_of(executor_of(registry_of(echo=sleeper)))
    async with served(remote) as url:
        async with agent_of(executor_of(registry_of(asks=Asks(url))), storage=storage, task_settings=quick) as server:
            params = {"message": message({}, messageId="m"), "configuration": {"returnImmediately": True}}
            await call(server.app, "SendMessage", params, headers=[("idempotency-key", "m")])
            await sleeper.began.wait()
        async with agent_of(executor_of(registry_of(asks=Asks(url))), storage=storage) as server:
            asking = asyncio.create_task(task_of(server.app, {}, messageId="m"))
            [task] = (await call(remote.app, "ListTasks", {})).json["result"]["tasks"]
            await call(remote.app, "CancelTask", {"id": task["id"]})
            assert state(await asking) == "failed"  # the other agent's task was cancelled, so it has no artifact
        assert len((await call(remote.app, "ListTasks", {})).json["result"]["tasks"]) == 1


async def test_the_trace_is_propagated() -> None:
    seen: list[str] = []
    remote = agent_of(executor_of(registry_of(echo=Echo())))
    inner = remote.app

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(value.decode() for name, value in scope.get("headers", ()) if name == b"traceparent")
        await inner(scope, receive, send)

    remote.app = app
    async with served(remote) as url, agent_of(executor_of(registry_of(asks=Asks(url)))) as server:
        output(await task_of(server.app, {}))
    assert seen
    assert len({trace.split("-")[1] for trace in seen}) == 1


class Traced:
    """Returns the id of its trace, and that of the agent that it calls."""

    input_schema = Anything
    output_schema = Anything
    description = "Returns trace ids"

    def __init__(self, url: str = "") -> None:
        self.url = url

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        ids = [context.trace_id]
        if self.url:
            task = await agent(context, self.url).send({})
            assert isinstance(task, Task)
            ids += task.artifacts[0].parts[0].data["ids"]
        return {"ids": ids}


@pytest.mark.parametrize(
    ("sent", "continued"),
    [
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", True),
        ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", False),
        ("nonsense", False),
    ],
)
async def test_a_trace_continues_through_two_agents_with_no_setting(sent: str, *, continued: bool) -> None:
    remote = agent_of(executor_of(registry_of(traced=Traced())))
    async with served(remote) as url, agent_of(executor_of(registry_of(traced=Traced(url)))) as server:
        headers = [("traceparent", sent), ("tracestate", "vendor=1")]
        reply = await call(server.app, "SendMessage", {"message": message({})}, headers=headers)
        ids = output(reply.json["result"]["task"])["ids"]
    assert len(ids) == 2
    assert ids[0] == ids[1]
    assert (ids[0] == sent.split("-")[1 if continued else 0]) is continued


def test_only_a_module_in_a_task_can_call_an_agent() -> None:
    with pytest.raises(InvalidValue):
        agent(Context.create(), "http://127.0.0.1:1")
