"""Versions and extensions: requested by the client, and returned by the server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.types import ASGIApp

from keelbolt.errors import InvalidValue
from keelbolt.grpc.library import aio
from keelbolt.protocol.card import AgentCardConfig, ExtensionConfig
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.protobuf.methods import METHODS_V03, METHODS_V1
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from tests.integration.grpc.speaking import talking as speaking
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


PAGE = (Path(__file__).parents[3] / "docs/reference/protocol.md").read_text(encoding="utf-8")


def documented() -> list[tuple[str, str, str | None, str]]:
    """The table of versions: binding, request, A2A-Version, and the version used."""
    found = []
    table = PAGE.split("| request | `A2A-Version` | spoken |")[1].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        request, values, spoken = (cell.strip() for cell in line.strip("|").split("|"))
        binding, _, name = request.partition(" ")
        plain = re.sub(r"`[^`]*`", "", values)
        given: list[str | None] = [*re.findall(r"`([^`]*)`", values)]
        given += [None] * ("none" in plain) + [""] * ("empty" in plain)
        found += [(binding, name.strip("`"), value, spoken.strip("`")) for value in given]
    return found


def test_the_table_is_read() -> None:
    assert len(documented()) > 45
    assert {row[3] for row in documented()} == {"0.3", "1.0", "VersionNotSupportedError"}


@pytest.mark.parametrize(("binding", "name", "asked", "spoken"), [row for row in documented() if row[0] != "gRPC"])
@pytest.mark.parametrize("by", ["header", "query"])
async def test_the_documented_versions(
    app: ASGIApp, binding: str, name: str, asked: str | None, spoken: str, by: str
) -> None:
    """Every line of the table in docs/reference/protocol.md, by the shape of the response."""
    headers = [("a2a-version", asked)] if asked is not None and by == "header" else []
    query = f"A2A-Version={quote(asked)}" if asked is not None and by == "query" else ""
    if binding == "JSON-RPC":
        reply = await call(app, name, {"id": "nowhere"}, headers=headers, query=query)
        error = reply.json["error"]
        code = -32009 if spoken == "VersionNotSupportedError" else -32001
        assert (reply.status, error["code"]) == (200, code)
        if code == -32001:
            assert isinstance(error["data"], list if spoken == "1.0" else dict)
        return
    reply = await ask(app, "GET", name.format(id="nowhere"), headers=headers, query=query)
    if spoken == "VersionNotSupportedError":
        assert reply.status == 400
        assert "VERSION_NOT_SUPPORTED" in reply.body.decode() or reply.json["error"] == spoken
    else:
        assert reply.status == 404
        assert isinstance(reply.json["error"], dict if spoken == "1.0" else str)


@pytest.mark.parametrize(("_binding", "name", "asked", "spoken"), [row for row in documented() if row[0] == "gRPC"])
async def test_the_documented_versions_of_grpc(_binding: str, name: str, asked: str | None, spoken: str) -> None:
    metadata = (("a2a-version", asked),) if asked is not None else ()
    methods = METHODS_V1 if name == "lf.a2a.v1" else METHODS_V03
    method = next(each for each in methods.values() if each.operation is Operation.get_task)
    assert method.path.startswith(f"/{name}.")
    fields = {"id": "nowhere"} if name == "lf.a2a.v1" else {"name": "tasks/nowhere"}
    async with speaking() as talk:
        call = talk.channel.unary_unary(method.path)
        with pytest.raises(aio.AioRpcError) as refusal:
            await call(method.request(**fields).SerializeToString(), metadata=metadata)
    wanted = "FAILED_PRECONDITION" if spoken == "VersionNotSupportedError" else "NOT_FOUND"
    assert refusal.value.code().name == wanted


async def test_the_header_takes_precedence_over_the_query(app: ASGIApp) -> None:
    headers = [("a2a-version", "1.0")]
    reply = await call(app, "GetTask", {"id": "nowhere"}, headers=headers, query="A2A-Version=9.9")
    assert code_of(reply) == -32001


async def test_rest_of_0_3_has_two_forms(app: ASGIApp) -> None:
    """Under /v1 it is the JSON of protobuf; on a path of 1.0, requested as 0.3, plain JSON (like a2akit's client)."""
    message = {"messageId": "m", "kind": "message", "role": "user", "parts": [{"kind": "text", "text": "echo hi"}]}
    headers = [("content-type", "application/json"), ("a2a-version", "0.3.0")]
    reply = await ask(app, "POST", "/message:send", headers=headers, body=json.dumps({"message": message}).encode())
    assert (reply.json["kind"], reply.json["status"]["state"]) == ("task", "completed")
    task_id = reply.json["id"]
    plain = await ask(app, "GET", f"/tasks/{task_id}", headers=headers)
    assert (plain.json["kind"], plain.header("content-type")) == ("task", "application/json")
    assert [task["id"] for task in (await ask(app, "GET", "/tasks", headers=headers)).json["tasks"]] == [task_id]
    proto = await ask(app, "GET", f"/v1/tasks/{task_id}")
    assert proto.json["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_an_agent_of_only_1_0() -> None:
    """The agent supports nothing of 0.3, and the card has only the members of 1.0."""
    async with agent(settings=ServerSettings.of({}, protocols=("1.0",))) as server:
        app = server.app
        assert code_of(await call(app, "GetTask", {"id": "nowhere"})) == -32001
        reply = await call(app, "tasks/get", {"id": "nowhere"})
        assert (code_of(reply), "supports 1.0" in reply.json["error"]["message"]) == (-32009, True)
        assert code_of(await call(app, "GetTask", {"id": "nowhere"}, headers=[("a2a-version", "0.3")])) == -32009
        assert (await ask(app, "GET", "/v1/tasks/nowhere")).status == 400
        assert (await ask(app, "GET", "/tasks/nowhere", headers=[("a2a-version", "0.3")])).status == 400
        card = (await ask(app, "GET", "/.well-known/agent-card.json")).json
        assert {one["protocolVersion"] for one in card["supportedInterfaces"]} == {"1.0"}
        assert not {"url", "protocolVersion", "preferredTransport", "additionalInterfaces"} & card.keys()
        assert "stateTransitionHistory" not in card["capabilities"]


async def test_an_agent_of_only_0_3() -> None:
    async with agent(settings=ServerSettings.of({"KEELBOLT_PROTOCOLS": "0.3"})) as server:
        app = server.app
        assert code_of(await call(app, "tasks/get", {"id": "nowhere"})) == -32001
        assert code_of(await call(app, "GetTask", {"id": "nowhere"})) == -32009
        assert (await ask(app, "GET", "/v1/tasks/nowhere")).json["error"] == "TaskNotFoundError"
        assert (await ask(app, "GET", "/tasks/nowhere")).json["error"] == "TaskNotFoundError"
        card = (await ask(app, "GET", "/.well-known/agent-card.json")).json
        assert {one["protocolVersion"] for one in card["supportedInterfaces"]} == {"0.3"}
        assert card["protocolVersion"] == "0.3.0"


@pytest.mark.parametrize("protocols", [(), ("2.0",), ("1.0", "new"), "1.0"])
def test_invalid_protocols(protocols: object) -> None:
    with pytest.raises(InvalidValue, match=r"protocols must be one or more of 0\.3, 1\.0"):
        ServerSettings.of({}, protocols=protocols)


# ---------------------------------------------------------------------------------------------------------- extensions


@pytest.mark.parametrize("header", ["A2A-Extensions", "X-A2A-Extensions"])
async def test_extensions_in_use_are_returned(app: ASGIApp, header: str) -> None:
    """Declared extensions are returned under the name that the client used; unknown ones are ignored."""
    asked = [(header, f"https://example.com/unknown, {MAY}")]
    reply = await call(app, "ListTasks", {}, headers=asked)
    assert reply.header(header.lower()) == MAY
    reply = await ask(app, "GET", "/tasks", headers=asked)
    assert reply.header(header.lower()) == MAY


async def test_extensions_in_several_lines_are_one_list(app: ASGIApp) -> None:
    asked = [("A2A-Extensions", "https://example.com/unknown"), ("A2A-Extensions", MAY)]
    assert (await call(app, "ListTasks", {}, headers=asked)).header("a2a-extensions") == MAY


async def test_without_extensions_no_header_is_returned(app: ASGIApp) -> None:
    assert (await call(app, "ListTasks", {})).header("a2a-extensions") is None
    asked = [("A2A-Extensions", "https://example.com/unknown")]
    assert (await call(app, "ListTasks", {}, headers=asked)).header("a2a-extensions") is None


async def test_a_stream_returns_them_too(app: ASGIApp) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo"}]}
    reply = await call(app, "SendStreamingMessage", {"message": message}, headers=[("A2A-Extensions", MAY)])
    assert (reply.header("a2a-extensions"), len(reply.events)) == (MAY, 4)


async def test_an_extension_that_is_required() -> None:
    """Without the extension every binding refuses every operation; with it all succeed. The card stays public."""
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


async def describe_request(ctx: TaskContext) -> None:
    await ctx.complete_json({"metadata": ctx.request_metadata, "extensions": ctx.extensions})


@pytest.mark.parametrize("method", ["SendMessage", "message/send"])
async def test_the_worker_gets_the_metadata_of_the_request(method: str) -> None:
    """The worker gets the metadata of the request and the extensions in use, without unknown ones."""
    card = AgentCardConfig(name="Teller", description="Tells", extensions=(ExtensionConfig(uri=MAY),))
    old = method == "message/send"
    message = {"messageId": "m", "role": "user" if old else "ROLE_USER", "parts": [{"kind": "text", "text": "x"}]}
    async with A2AServer(worker=describe_request, agent_card=card) as server:
        params = {"message": message, "metadata": {"trip": {"to": "Oslo"}}}
        header = "x-a2a-extensions" if old else "a2a-extensions"
        reply = await call(server.app, method, params, headers=[(header, f"{MAY}, https://example.com/unknown")])
        task = reply.json["result"] if old else reply.json["result"]["task"]
        assert task["artifacts"][0]["parts"][0]["data"] == {"metadata": {"trip": {"to": "Oslo"}}, "extensions": [MAY]}
        reply = await call(server.app, method, {"message": {**message, "messageId": "bare"}})
        task = reply.json["result"] if old else reply.json["result"]["task"]
        assert task["artifacts"][0]["parts"][0]["data"] == {"metadata": {}, "extensions": []}


async def test_the_metadata_of_the_request_is_bounded(app: ASGIApp) -> None:
    """The limit is needed because every status of the task writes the metadata again."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    reply = await call(app, "SendMessage", {"message": message, "metadata": {"x": "x" * 300_000}})
    assert code_of(reply) == -32602


async def test_the_worker_gets_the_metadata_of_a_cancel() -> None:
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
