"""Versions and extensions: what a client asks for, and what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import ASGIApp

from keelbolt.protocol.card import AgentCardConfig, ExtensionConfig
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext
from tests.integration.server.actor import agent
from tests.integration.server.asgi import Reply, ask, call

MAY = "https://example.com/may"
MUST = "https://example.com/must"


@pytest.fixture
async def app() -> AsyncIterator[ASGIApp]:
    async with agent(extensions=(ExtensionConfig(uri=MAY),)) as server:
        yield server.app


def code_of(reply: Reply) -> int | None:
    error = reply.json.get("error")
    return None if error is None else int(error["code"])


@pytest.mark.parametrize(
    ("method", "asked", "code"),
    [
        ("GetTask", None, -32001),
        ("GetTask", "", -32001),
        ("GetTask", "1.0", -32001),
        ("GetTask", "1.0.7", -32001),
        ("tasks/get", None, -32001),
        ("tasks/get", "0.3", -32001),
        ("tasks/get", "0.3.0", -32001),
        ("GetTask", "1.1", -32009),
        ("GetTask", "2.0", -32009),
        ("GetTask", "0.2", -32009),
        ("GetTask", "new", -32009),
        ("GetTask", "0.3", -32009),
        ("tasks/get", "1.0", -32009),
    ],
)
@pytest.mark.parametrize("by", ["header", "query"])
async def test_versions_of_json_rpc(app: ASGIApp, method: str, asked: str | None, code: int, by: str) -> None:
    """The name of the method tells the version; a version that is asked for must be that one."""
    headers = [("a2a-version", asked)] if asked is not None and by == "header" else []
    query = f"A2A-Version={asked}" if asked is not None and by == "query" else ""
    reply = await call(app, method, {"id": "nowhere"}, headers=headers, query=query)
    assert reply.status == 200
    assert code_of(reply) == code
    if code == -32009:
        assert "0.3 and 1.0" in reply.json["error"]["message"] or "asked for" in reply.json["error"]["message"]


async def test_the_header_counts_more_than_the_query(app: ASGIApp) -> None:
    headers = [("a2a-version", "1.0")]
    reply = await call(app, "GetTask", {"id": "nowhere"}, headers=headers, query="A2A-Version=9.9")
    assert code_of(reply) == -32001


@pytest.mark.parametrize(
    ("path", "asked", "reason"),
    [
        ("/tasks/nowhere", None, "TASK_NOT_FOUND"),
        ("/tasks/nowhere", "1.0", "TASK_NOT_FOUND"),
        ("/tasks/nowhere", "0.3", "VERSION_NOT_SUPPORTED"),
        ("/tasks/nowhere", "3.0", "VERSION_NOT_SUPPORTED"),
    ],
)
@pytest.mark.parametrize("by", ["header", "query"])
async def test_versions_of_rest(app: ASGIApp, path: str, asked: str | None, reason: str, by: str) -> None:
    headers = [("a2a-version", asked)] if asked is not None and by == "header" else []
    query = f"A2A-Version={asked}" if asked is not None and by == "query" else ""
    reply = await ask(app, "GET", path, headers=headers, query=query)
    assert reply.status == (404 if reason == "TASK_NOT_FOUND" else 400)
    assert reply.json["error"]["details"][0]["reason"] == reason


async def test_rest_of_0_3_is_under_v1(app: ASGIApp) -> None:
    reply = await ask(app, "GET", "/v1/tasks/nowhere")
    assert (reply.status, reply.header("content-type")) == (404, "application/json")
    reply = await ask(app, "GET", "/v1/tasks/nowhere", headers=[("a2a-version", "1.0")])
    assert reply.status == 400


# ---------------------------------------------------------------------------------------------------------- extensions


@pytest.mark.parametrize("header", ["A2A-Extensions", "X-A2A-Extensions"])
async def test_extensions_in_use_are_told(app: ASGIApp, header: str) -> None:
    """Those that are declared come back, under the name that the client used; what nobody knows is ignored."""
    asked = [(header, f"https://example.com/unknown, {MAY}")]
    reply = await call(app, "ListTasks", {}, headers=asked)
    assert reply.header(header.lower()) == MAY
    reply = await ask(app, "GET", "/tasks", headers=asked)
    assert reply.header(header.lower()) == MAY


async def test_extensions_in_several_lines_are_one_list(app: ASGIApp) -> None:
    asked = [("A2A-Extensions", "https://example.com/unknown"), ("A2A-Extensions", MAY)]
    assert (await call(app, "ListTasks", {}, headers=asked)).header("a2a-extensions") == MAY


async def test_without_extensions_nothing_is_told(app: ASGIApp) -> None:
    assert (await call(app, "ListTasks", {})).header("a2a-extensions") is None
    asked = [("A2A-Extensions", "https://example.com/unknown")]
    assert (await call(app, "ListTasks", {}, headers=asked)).header("a2a-extensions") is None


async def test_a_stream_tells_them_too(app: ASGIApp) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo"}]}
    reply = await call(app, "SendStreamingMessage", {"message": message}, headers=[("A2A-Extensions", MAY)])
    assert (reply.header("a2a-extensions"), len(reply.events)) == (MAY, 4)


async def test_an_extension_that_is_required() -> None:
    """Without it every operation is refused, in every binding; with it all is well. The card is for everybody."""
    async with agent(extensions=(ExtensionConfig(uri=MUST, required=True),)) as server:
        app = server.app
        asked = [("A2A-Extensions", MUST)]
        reply = await call(app, "ListTasks", {})
        assert (code_of(reply), reply.json["error"]["data"][0]["reason"]) == (-32008, "EXTENSION_SUPPORT_REQUIRED")
        assert MUST in reply.json["error"]["message"]
        assert code_of(await call(app, "tasks/get", {"id": "nowhere"})) == -32008
        reply = await ask(app, "GET", "/tasks")
        assert (reply.status, reply.json["error"]["status"]) == (400, "FAILED_PRECONDITION")
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo"}]}
        assert code_of(await call(app, "SendStreamingMessage", {"message": message})) == -32008
        reply = await call(app, "ListTasks", {}, headers=asked)
        assert (code_of(reply), reply.header("a2a-extensions")) == (None, MUST)
        assert reply.json["result"]["tasks"] == []
        assert (await ask(app, "GET", "/.well-known/agent-card.json")).status == 200


async def told(ctx: TaskContext) -> None:
    await ctx.complete_json({"metadata": ctx.request_metadata, "extensions": ctx.extensions})


@pytest.mark.parametrize("method", ["SendMessage", "message/send"])
async def test_the_worker_is_told_what_stands_beside_the_message(method: str) -> None:
    """The metadata of the request, and the extensions that are in use: not those that nobody knows."""
    card = AgentCardConfig(name="Teller", description="Tells", extensions=(ExtensionConfig(uri=MAY),))
    old = method == "message/send"
    message = {"messageId": "m", "role": "user" if old else "ROLE_USER", "parts": [{"kind": "text", "text": "x"}]}
    async with A2AServer(worker=told, agent_card=card) as server:
        params = {"message": message, "metadata": {"trip": {"to": "Oslo"}}}
        header = "x-a2a-extensions" if old else "a2a-extensions"
        reply = await call(server.app, method, params, headers=[(header, f"{MAY}, https://example.com/unknown")])
        task = reply.json["result"] if old else reply.json["result"]["task"]
        assert task["artifacts"][0]["parts"][0]["data"] == {"metadata": {"trip": {"to": "Oslo"}}, "extensions": [MAY]}
        reply = await call(server.app, method, {"message": {**message, "messageId": "bare"}})
        task = reply.json["result"] if old else reply.json["result"]["task"]
        assert task["artifacts"][0]["parts"][0]["data"] == {"metadata": {}, "extensions": []}


async def test_what_stands_beside_the_message_is_bounded(app: ASGIApp) -> None:
    """It is written anew with every status of the task."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    reply = await call(app, "SendMessage", {"message": message, "metadata": {"x": "x" * 300_000}})
    assert code_of(reply) == -32602


async def test_the_worker_is_told_what_a_cancel_came_with() -> None:
    seen: list[Any] = []

    async def waits(ctx: TaskContext) -> None:
        seen.append(ctx.cancel_metadata)
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(ctx.cancel_metadata)

    async with A2AServer(worker=waits, agent_card=AgentCardConfig(name="Waiter", description="Waits")) as server:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
        params = {"message": message, "configuration": {"returnImmediately": True}}
        task = (await call(server.app, "SendMessage", params)).json["result"]["task"]
        while not seen:  # noqa: ASYNC110 - it is seen from outside
            await asyncio.sleep(0.01)
        reply = await call(server.app, "CancelTask", {"id": task["id"], "metadata": {"because": "rain"}})
        assert reply.json["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert seen == [{}, {"because": "rain"}]
