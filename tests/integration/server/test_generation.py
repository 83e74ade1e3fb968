"""The generation extension: dense numbers, waiting for a newer one, and conditional sends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from keelbolt.client import A2AClient
from keelbolt.errors import TaskGenerationMismatchError
from keelbolt.grpc.library import aio
from keelbolt.protocol.extensions import GENERATION
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks.families import SNAPSHOTS
from tests.integration.grpc.speaking import PB, talking
from tests.integration.server.actor import agent
from tests.integration.server.asgi import Reply, ask, call
from tests.integration.server.serving import served

ON = ServerSettings.of({}, generation=True, long_poll_seconds=10.0)
ASKED = [("a2a-extensions", GENERATION)]


@pytest.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ASGIApp]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"
    async with agent(url, settings=ON) as server:
        yield server.app


def params(text: str, match: int | None = None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}], **more}}
    return found if match is None else {**found, "metadata": {GENERATION: {"ifGenerationMatch": match}}}


def generation(value: dict[str, Any]) -> int:
    return int(value["metadata"][GENERATION]["generation"])


def task_of(reply: Reply) -> dict[str, Any]:
    found: dict[str, Any] = reply.json["result"]["task"]
    return found


async def test_it_is_off_by_default() -> None:
    """By default no card or task has a generation; with the setting, only clients that request it see it."""
    async with agent() as server:
        card = (await ask(server.app, "GET", "/.well-known/agent-card.json")).json
        assert GENERATION not in json.dumps(card)
        assert "metadata" not in task_of(await call(server.app, "SendMessage", params("echo hi"), headers=ASKED))
    async with agent(settings=ON) as server:
        card = (await ask(server.app, "GET", "/.well-known/agent-card.json")).json
        assert GENERATION in [one["uri"] for one in card["capabilities"]["extensions"]]
        assert "metadata" not in task_of(await call(server.app, "SendMessage", params("echo hi")))


async def test_each_event_has_the_next_generation(app: ASGIApp) -> None:
    """Generations start at 1 without gaps, in both streams and after any event; the task has that of its last event."""
    reply = await call(app, "SendStreamingMessage", params("count 20"), headers=ASKED)
    events = [next(iter(event["result"].values())) for event in reply.events]
    numbers = [generation(event) for event in events]
    assert numbers == list(range(1, len(events) + 1))
    assert len(events) > 20
    task_id = events[0]["id"]
    task = (await call(app, "GetTask", {"id": task_id}, headers=ASKED)).json["result"]
    assert generation(task) == numbers[-1]
    ids = [int(line[3:]) for line in reply.body.splitlines() if line.startswith(b"id:")]
    for place in (1, 7, len(ids) - 2):
        headers = [*ASKED, ("last-event-id", str(ids[place]))]
        again = await call(app, "SubscribeToTask", {"id": task_id}, headers=headers)
        assert [generation(next(iter(event["result"].values()))) for event in again.events] == numbers[place + 1 :]
    old = await call(app, "tasks/get", {"id": task_id}, headers=[("x-a2a-extensions", GENERATION)])
    assert generation(old.json["result"]) == numbers[-1]


async def test_get_waits_for_a_newer_generation(app: ASGIApp, tmp_path: Path) -> None:
    """The call returns when the task changes; the parameter, the query or the header requests the wait."""
    sent = {**params(f"until {tmp_path}/go"), "configuration": {"returnImmediately": True}}
    task_id = task_of(await call(app, "SendMessage", sent, headers=ASKED))["id"]
    task = (await call(app, "GetTask", {"id": task_id}, headers=ASKED)).json["result"]
    now = generation(task)
    assert generation(
        (await call(app, "GetTask", {"id": task_id, "currentGeneration": 0}, headers=ASKED)).json["result"]
    )
    waits = [
        asyncio.create_task(call(app, "GetTask", {"id": task_id, "currentGeneration": now}, headers=ASKED)),
        asyncio.create_task(ask(app, "GET", f"/tasks/{task_id}", headers=ASKED, query=f"currentGeneration={now}")),
        asyncio.create_task(
            call(app, "tasks/get", {"id": task_id}, headers=[*ASKED, ("current-generation", str(now))])
        ),
    ]
    await asyncio.sleep(0.2)
    assert not any(wait.done() for wait in waits)
    (tmp_path / "go").touch()
    first, second, third = await asyncio.wait_for(asyncio.gather(*waits), 9)
    assert generation(first.json["result"]) > now
    assert generation(second.json) > now
    assert generation(third.json["result"]) > now
    over = (await call(app, "GetTask", {"id": task_id, "currentGeneration": 10_000}, headers=ASKED)).json["result"]
    assert over["status"]["state"] == "TASK_STATE_COMPLETED"  # an ended task can't change, so the call does not wait


async def test_waiting_has_a_time_limit() -> None:
    """After long_poll_seconds the call returns the current task; without the extension it does not wait."""
    settings = ServerSettings.of({}, generation=True, long_poll_seconds=0.2)
    async with agent(settings=settings) as server:
        task = task_of(await call(server.app, "SendMessage", params("ask"), headers=ASKED))
        asked = {"id": task["id"], "currentGeneration": 1000}
        began = time.monotonic()
        same = (await call(server.app, "GetTask", asked, headers=ASKED)).json["result"]
        assert time.monotonic() - began > 0.15
        assert generation(same) == generation(task)
        assert (await call(server.app, "GetTask", asked)).json["result"]["id"] == task["id"]


@pytest.mark.parametrize("wrong", [-1, "x", 1.5, True, [1]])
async def test_invalid_generations(app: ASGIApp, wrong: Any) -> None:
    task = task_of(await call(app, "SendMessage", params("ask"), headers=ASKED))
    reply = await call(app, "GetTask", {"id": task["id"], "currentGeneration": wrong}, headers=ASKED)
    assert reply.json["error"]["code"] == -32602
    reply = await call(app, "SendMessage", params("x", wrong, taskId=task["id"]), headers=ASKED)
    assert reply.json["error"]["code"] == -32602


async def test_a_send_that_requires_a_generation(app: ASGIApp) -> None:
    """The agent accepts it if the task has this generation, otherwise responds with 409; new tasks are not checked."""
    task = task_of(await call(app, "SendMessage", params("ask", 77), headers=ASKED))
    now = generation(task)
    stale = await call(app, "SendMessage", params("late", now - 1, taskId=task["id"]), headers=ASKED)
    assert stale.json["error"]["code"] == -32010
    info = stale.json["error"]["data"][0]
    assert info["reason"] == "TASK_GENERATION_MISMATCH"
    assert info["metadata"] == {
        "taskId": task["id"],
        "expectedGeneration": str(now - 1),
        "currentGeneration": str(now),
    }
    body = json.dumps(params("late", now - 1, taskId=task["id"])).encode()
    headers = [*ASKED, ("content-type", "application/json")]
    rest = await ask(app, "POST", "/message:send", headers=headers, body=body)
    assert (rest.status, rest.json["error"]["status"]) == (409, "ABORTED")
    taken = task_of(await call(app, "SendMessage", params("Ada", now, taskId=task["id"]), headers=ASKED))
    assert generation(taken) > now
    assert [one["parts"][0]["text"] for one in taken["history"] if one["role"] == "ROLE_USER"] == ["ask", "Ada"]


async def test_of_concurrent_sends_one_wins(app: ASGIApp) -> None:
    """Of twenty answers that require the same generation, one is accepted and the others are refused."""
    task = task_of(await call(app, "SendMessage", params("ask"), headers=ASKED))
    now = generation(task)
    sends = [
        call(app, "SendMessage", params(f"answer {number}", now, taskId=task["id"]), headers=ASKED)
        for number in range(20)
    ]
    replies = await asyncio.gather(*sends)
    codes = [reply.json.get("error", {}).get("code") for reply in replies]
    assert sorted(codes, key=str) == sorted([None, *[-32010] * 19], key=str)


async def test_a_running_task_too(app: ASGIApp, tmp_path: Path) -> None:
    """A message to a running task is checked in the commit that accepts it."""
    sent = {**params(f"until {tmp_path}/go"), "configuration": {"returnImmediately": True}}
    task = task_of(await call(app, "SendMessage", sent, headers=ASKED))
    now = generation((await call(app, "GetTask", {"id": task["id"]}, headers=ASKED)).json["result"])
    wait = {"configuration": {"returnImmediately": True}}
    more = {**params("echo", now + 5, taskId=task["id"]), **wait}
    assert (await call(app, "SendMessage", more, headers=ASKED)).json["error"]["code"] == -32010
    more = {**params("echo", now, taskId=task["id"]), **wait}
    assert "result" in (await call(app, "SendMessage", more, headers=ASKED)).json
    (tmp_path / "go").touch()


async def test_by_grpc() -> None:
    """The metadata has the generation, and a refused send gets ABORTED."""
    asked = (("a2a-extensions", GENERATION),)
    async with talking(settings=ON) as talk:
        task = await talk.send("ask", metadata=asked)
        now = int(task.metadata[GENERATION]["generation"])
        request = PB.GetTaskRequest(id=task.id)
        again = await talk.stub.GetTask(request, metadata=(*asked, ("current-generation", str(now - 1))))
        assert again.metadata[GENERATION]["generation"] == now
        late = talk.request("late", task_id=task.id)
        late.metadata[GENERATION] = {"ifGenerationMatch": now - 1}
        with pytest.raises(aio.AioRpcError) as refusal:
            await talk.stub.SendMessage(late, metadata=asked)
        assert refusal.value.code().name == "ABORTED"


async def test_our_client_raises_the_error() -> None:
    async with served(agent(settings=ON)) as url, A2AClient(url, extensions=[GENERATION]) as client:
        task: Any = await client.send_message("ask")
        now = task.metadata[GENERATION]["generation"]
        required = {GENERATION: {"ifGenerationMatch": now + 1}}
        with pytest.raises(TaskGenerationMismatchError):
            await client.send_message("late", task_id=task.id, metadata=required)


async def test_it_survives_snapshots_and_restarts(tmp_path: Path) -> None:
    """A long task that another process loads from its snapshot has the generation of its last event."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with agent(url, settings=ON) as server:
        reply = await call(server.app, "SendStreamingMessage", params("count 700"), headers=ASKED)
        events = [next(iter(event["result"].values())) for event in reply.events]
        assert [generation(event) for event in events] == list(range(1, len(events) + 1))
        kernel = server.routes.service.engine.kernel
        assert await kernel.get("~anonymous", SNAPSHOTS, events[0]["id"]) is not None
    async with agent(url, settings=ON) as server:
        task = (await call(server.app, "GetTask", {"id": events[0]["id"]}, headers=ASKED)).json["result"]
        assert generation(task) == len(events)
