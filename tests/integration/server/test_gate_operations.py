"""Gates over the operations API: an operator sees and settles them, and the task continues."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from keelbolt.protocol.card import AgentCardConfig
from keelbolt.protocol.types import TaskState
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskEngine
from keelbolt.turns import DispatchContext, durable_storage, turn_worker
from tests.integration.server.asgi import Reply, ask
from tests.integration.server.people import authenticator, bearer
from tests.integration.tasks.stage import message

OPERATOR = bearer("olga", roles=["operator:all"])


async def execute(ctx: DispatchContext, _helpers: Any) -> None:
    answer = await ctx.wait_for(reason="How much?", schema={"type": "integer", "maximum": 100})
    ctx.nack(f"it was {answer}")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[A2AServer]:
    url = f"sqlite:///{tmp_path}/agent.db"
    storage = durable_storage(url)
    worker = turn_worker(storage.runner(executor_callback=execute), storage, system_prompt="Ask.")
    card = AgentCardConfig(name="Asks", description="Asks how much")
    async with A2AServer(worker=worker, agent_card=card, storage=url, auth=authenticator()) as server:
        yield server


async def call(server: A2AServer, method: str, path: str, body: Any = None, who: Any = OPERATOR) -> Reply:
    headers = [("content-type", "application/json"), ("host", "agent.example"), *who]
    data = b"" if body is None else json.dumps(body).encode()
    where, _, query = path.partition("?")
    return await ask(server.app, method, f"/keelbolt/v1{where}", headers=headers, body=data, query=query)


def engine_of(server: A2AServer) -> TaskEngine:
    assert server._routes is not None
    return server._routes.service.engine


async def test_an_operator_settles_a_gate_and_the_task_continues(server: A2AServer) -> None:
    engine = engine_of(server)
    waiting = await engine.tasks.settled(await engine.tasks.send(message("go")), seconds=30)
    assert waiting.view.state == TaskState.input_required
    reply = await call(server, "GET", "/gates")
    assert reply.status == 200, reply.body
    (gate,) = json.loads(reply.body)["gates"]
    path = f"/gates/{gate['token']}"
    assert (gate["reason"], gate["state"], gate["about"]["taskId"]) == ("How much?", "open", waiting.task_id)
    assert json.loads((await call(server, "GET", path)).body) == gate
    for method, where in (("GET", "/gates"), ("GET", path), ("POST", path)):
        assert (await call(server, method, where, {"value": 1}, bearer("alice"))).status == 404
    assert (await call(server, "POST", path, {"value": 101})).status == 400
    assert (await call(server, "POST", path, {"answer": "shrug"})).status == 400
    for wrong in ("none", "a.b", "x" * 300):
        assert (await call(server, "POST", f"/gates/{wrong}", {"value": 1})).status == 404
    settled = json.loads((await call(server, "POST", path, {"value": 7})).body)
    assert (settled["result"], settled["value"], settled["taskGoesOn"]) == ("resolved", 7, True)
    again = json.loads((await call(server, "POST", path, {"answer": "reject", "reason": "late"})).body)
    assert (again["result"], again["value"]) == ("resolved", 7)
    async with asyncio.timeout(30):
        async for _ in engine.tasks.follow(waiting.task_id):
            pass
    done = await engine.store.task(await engine.tasks.load(waiting.task_id))
    assert done.status.state == TaskState.failed
    assert done.status.message is not None
    assert done.status.message.text == "it was 7"
    assert json.loads((await call(server, "GET", "/gates")).body) == {"gates": []}
    assert len(json.loads((await call(server, "GET", "/gates?state=settled")).body)["gates"]) == 1
