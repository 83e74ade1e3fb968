"""Features that are off by default: the history of states, cancel on disconnect, other origins."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from tests.integration.server.actor import act, agent
from tests.integration.server.asgi import Reply, ask, call
from tests.integration.server.serving import talking

V1 = [("a2a-version", "1.0")]
PAGE = "https://page.example"


def message(text: str, **ids: str) -> dict[str, Any]:
    return {"message": {"messageId": f"m-{text}-{len(ids)}", "role": "ROLE_USER", "parts": [{"text": text}], **ids}}


# --------------------------------------------------------------------------------------- the history of states


def remembering(*, on: bool) -> A2AServer:
    capabilities = CapabilitiesConfig(streaming=True, state_transition_history=on)
    card = AgentCardConfig(name="Actor", description="Does as asked", capabilities=capabilities)
    return A2AServer(worker=act, agent_card=card)


async def test_a_task_lists_its_states() -> None:
    """The metadata lists the states, oldest first, each with its time, in both versions; the card declares it."""
    async with remembering(on=True) as server:
        task = (await call(server.app, "SendMessage", message("ask"), headers=V1)).json["result"]["task"]
        await call(server.app, "SendMessage", message("Ada", taskId=task["id"]), headers=V1)
        new = (await call(server.app, "GetTask", {"id": task["id"]}, headers=V1)).json["result"]
        old = (await call(server.app, "tasks/get", {"id": task["id"]})).json["result"]
        card = (await ask(server.app, "GET", "/.well-known/agent-card.json")).json
    states = ["submitted", "working", "input-required", "submitted", "working", "completed"]
    for seen in (new, old):
        history = seen["metadata"]["stateTransitionHistory"]
        assert [one["state"] for one in history] == states
        times = [one["timestamp"] for one in history]
        assert times == sorted(times)
        assert times[-1] == seen["status"]["timestamp"]
    assert card["capabilities"]["stateTransitionHistory"] is True


async def test_a_task_does_not_list_its_states_by_default() -> None:
    async with remembering(on=False) as server:
        task = (await call(server.app, "SendMessage", message("echo"), headers=V1)).json["result"]["task"]
        card = (await ask(server.app, "GET", "/.well-known/agent-card.json")).json
    assert "metadata" not in task
    assert card["capabilities"]["stateTransitionHistory"] is False


# --------------------------------------------------------------------------------------------------------- disconnects


@pytest.mark.parametrize(("cancels", "state"), [(False, "WORKING"), (True, "CANCELED")])
async def test_a_client_that_leaves_cancels_its_task_only_where_that_is_configured(cancels: bool, state: str) -> None:
    settings = ServerSettings.of({}, cancel_on_disconnect=cancels)
    async with talking(agent(settings=settings)) as client:
        async with client.stream("POST", "/message:stream", json=message("wait")) as answer:
            async for line in answer.aiter_lines():
                if "WORKING" in line:
                    break
        [task] = (await client.get("/tasks")).json()["tasks"]
        for _ in range(200 if cancels else 20):
            task = (await client.get(f"/tasks/{task['id']}")).json()
            if cancels and task["status"]["state"] == f"TASK_STATE_{state}":
                break
            await asyncio.sleep(0.02)
        assert task["status"]["state"] == f"TASK_STATE_{state}"
        await client.post(f"/tasks/{task['id']}:cancel")


async def test_a_mere_reader_cancels_nothing_by_leaving() -> None:
    settings = ServerSettings.of({}, cancel_on_disconnect=True)
    async with talking(agent(settings=settings)) as client:
        body = {**message("wait"), "configuration": {"returnImmediately": True}}
        task = (await client.post("/message:send", json=body)).json()["task"]
        async with client.stream("GET", f"/tasks/{task['id']}:subscribe") as answer:
            await anext(answer.aiter_lines())
        await asyncio.sleep(0.3)
        assert (await client.get(f"/tasks/{task['id']}")).json()["status"]["state"] == "TASK_STATE_WORKING"
        await client.post(f"/tasks/{task['id']}:cancel")


# ------------------------------------------------------------------------------------------------------- CORS


async def preflight(server: A2AServer, origin: str, headers: str = "content-type") -> Reply:
    asked = [
        ("host", "localhost"),
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", headers),
    ]
    async with server:
        return await ask(server.app, "OPTIONS", "/", headers=asked)


async def test_other_origins_are_refused_by_default() -> None:
    reply = await preflight(agent(), PAGE)
    assert reply.status == 404
    assert reply.header("access-control-allow-origin") is None


async def test_an_allowed_origin_may_call() -> None:
    """An allowed origin may send every header that A2A and its streams need; other origins may not call."""
    server = agent(settings=ServerSettings.of({}, cors_origins=[PAGE]))
    reply = await preflight(server, PAGE, "a2a-version, a2a-extensions, last-event-id, authorization, content-type")
    assert reply.status == 200
    assert reply.header("access-control-allow-origin") == PAGE
    assert "DELETE" in (reply.header("access-control-allow-methods") or "")
    for header in ("A2A-Version", "A2A-Extensions", "Last-Event-ID"):
        assert header in (reply.header("access-control-allow-headers") or "")
    assert (await preflight(server, PAGE, "x-of-its-own")).status == 400
    other = await preflight(server, "https://other.example")
    assert other.status == 400
    assert other.header("access-control-allow-origin") is None


async def test_the_page_can_read_the_response() -> None:
    server = agent(settings=ServerSettings.of({"KEELBOLT_CORS_ORIGINS": f"{PAGE}, https://more.example"}))
    async with server:
        reply = await call(server.app, "SendMessage", message("echo hi"), headers=[*V1, ("origin", PAGE)])
        assert reply.header("access-control-allow-origin") == PAGE
        assert "ETag" in (reply.header("access-control-expose-headers") or "")
        stream = await call(server.app, "SendStreamingMessage", message("echo"), headers=[*V1, ("origin", PAGE)])
        assert stream.header("access-control-allow-origin") == PAGE
        assert len(stream.events) == 4
        stranger = await call(
            server.app, "SendMessage", message("echo ho"), headers=[*V1, ("origin", "https://x.example")]
        )
        assert stranger.header("access-control-allow-origin") is None


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_allowing_every_origin_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    agent(settings=ServerSettings.of({}, cors_origins=[PAGE]))
    assert warnings(caplog) == []
    agent(settings=ServerSettings.of({}, cors_origins=["*"]))
    assert warnings(caplog) == ["CORS: pages of every origin may call this agent"]
