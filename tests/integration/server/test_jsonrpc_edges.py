"""Edge cases of JSON-RPC: for any input the response is JSON-RPC, with the id if there was one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import ASGIApp

from tests.integration.server.actor import agent
from tests.integration.server.asgi import Reply, ask, call

CALL = {"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": {"id": "nowhere"}}


@pytest.fixture
async def app() -> AsyncIterator[ASGIApp]:
    async with agent() as server:
        yield server.app


async def post(app: ASGIApp, body: bytes) -> Reply:
    reply = await ask(app, "POST", "/", headers=[("content-type", "application/json")], body=body)
    assert reply.header("content-type") == "application/json"
    return reply


def changed(**members: Any) -> bytes:
    return json.dumps({**CALL, **members}).encode()


@pytest.mark.parametrize(
    ("body", "code", "http"),
    [
        (b"", -32700, 200),
        (b"{", -32700, 200),
        (b"GET / HTTP/1.1", -32700, 200),
        (b"\xef\xbb\xbf" + changed(), -32700, 200),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, 200),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":NaN}}', -32700, 200),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":-Infinity}}', -32700, 200),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"historyLength":1e999}}', -32700, 200),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","method":"ListTasks"}', -32700, 200),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"\\ud800"}}', -32700, 200),
        (b"[" * 100_000, -32600, 413),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":' + b'{"a":' * 100 + b"1" + b"}" * 101, -32600, 413),
        (b"null", -32600, 200),
        (b'"GetTask"', -32600, 200),
        (b"[]", -32600, 200),
    ],
)
async def test_unreadable_requests_get_a_null_id(app: ASGIApp, body: bytes, code: int, http: int) -> None:
    """Bad JSON, duplicate keys and values other than objects get an error with the id null."""
    reply = await post(app, body)
    assert reply.status == http
    assert (reply.json["id"], reply.json["error"]["code"]) == (None, code)


async def test_batches_are_refused_completely(app: ASGIApp) -> None:
    """A batch gets one error, and none of its calls is executed."""
    one = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo"}]}
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": one}}, CALL]
    reply = await post(app, json.dumps(batch).encode())
    assert reply.json["error"]["code"] == -32600
    assert "batch" in reply.json["error"]["message"]
    assert (await call(app, "ListTasks", {})).json["result"]["tasks"] == []


@pytest.mark.parametrize("given", [7, 0, -1, 2**60, "seven", "", None])
async def test_ids_are_returned_unchanged(app: ASGIApp, given: Any) -> None:
    reply = await post(app, changed(id=given))
    assert reply.json["id"] == given
    assert type(reply.json["id"]) is type(given)
    assert reply.json["error"]["code"] == -32001


@pytest.mark.parametrize("given", [True, 1.5, [], {}, "x" * 10_000])
async def test_invalid_ids(app: ASGIApp, given: Any) -> None:
    reply = await post(app, changed(id=given))
    assert (reply.json["id"], reply.json["error"]["code"]) == (None, -32600)


async def test_a_call_without_an_id_is_an_error(app: ASGIApp) -> None:
    """A2A has no notifications, so a missing id is an error."""
    body = {name: value for name, value in CALL.items() if name != "id"}
    reply = await post(app, json.dumps(body).encode())
    assert (reply.json["id"], reply.json["error"]["code"]) == (None, -32001)


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"jsonrpc": "1.0"}, -32600),
        ({"jsonrpc": 2.0}, -32600),
        ({"jsonrpc": None}, -32600),
        ({"method": None}, -32600),
        ({"method": 1}, -32600),
        ({"method": ["GetTask"]}, -32600),
        ({"method": ""}, -32601),
        ({"method": "gettask"}, -32601),
        ({"method": "rpc.discover"}, -32601),
        ({"params": []}, -32602),
        ({"params": "nowhere"}, -32602),
        ({"params": None}, -32602),
        ({"params": {}}, -32602),
        ({"params": {"id": 1}}, -32602),
        ({"params": {"id": ["x"]}}, -32602),
        ({"params": {"id": ""}}, -32602),
        ({"params": {"id": "x" * 2_000}}, -32602),
        ({"params": {"id": "x", "historyLength": -1}}, -32602),
        ({"params": {"id": "x", "historyLength": 1.5}}, -32602),
        ({"params": {"id": "x", "historyLength": "many"}}, -32602),
        ({"method": "ListTasks", "params": {"pageSize": 0}}, -32602),
        ({"method": "ListTasks", "params": {"pageSize": 101}}, -32602),
        ({"method": "ListTasks", "params": {"status": "TASK_STATE_TIRED"}}, -32602),
        ({"method": "ListTasks", "params": {"pageToken": "made up"}}, -32602),
        ({"method": "ListTasks", "params": {"statusTimestampAfter": "yesterday"}}, -32602),
        ({"method": "SendMessage", "params": {"message": "hello"}}, -32602),
        ({"method": "SendMessage", "params": {"message": {"messageId": "m", "role": "ROLE_USER"}}}, -32602),
        ({"method": "tasks/get", "params": {"id": None}}, -32602),
        ({"method": "message/send", "params": {"message": {"parts": 1}}}, -32602),
    ],
)
async def test_errors_of_a_call_have_its_id(app: ASGIApp, members: dict[str, Any], code: int) -> None:
    reply = await post(app, changed(**members))
    assert reply.status == 200
    assert (reply.json["id"], reply.json["error"]["code"]) == (7, code)


async def test_wrong_fields_are_named(app: ASGIApp) -> None:
    reply = await call(app, "GetTask", {"id": "x", "historyLength": -1})
    info, bad = reply.json["error"]["data"]
    assert info["reason"] == "INVALID_PARAMS"
    assert [violation["field"] for violation in bad["fieldViolations"]] == ["historyLength"]


async def test_unknown_members_are_ignored(app: ASGIApp) -> None:
    """Unknown members are ignored at every level; integers of any size are kept exactly."""
    number = 12_345_678_901_234_567_890_123
    message = {
        "messageId": "m",
        "role": "ROLE_USER",
        "parts": [{"text": "echo hello", "smell": "roses"}],
        "metadata": {"number": number},
        "weather": {"sunny": True},
    }
    reply = await call(app, "SendMessage", {"message": message, "mood": 1, "configuration": {"volume": 11}})
    task = reply.json["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    [kept] = task["history"]
    assert kept["metadata"] == {"number": number}
    assert "weather" not in kept
    assert kept["parts"] == [{"text": "echo hello"}]


@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("PUT", "/"), ("POST", "/nowhere"), ("GET", "/nowhere/x")])
async def test_other_paths_do_not_exist(app: ASGIApp, method: str, path: str) -> None:
    """The error is JSON."""
    reply = await ask(app, method, path)
    assert reply.status in (404, 405)
    assert reply.json["error"]["code"] == reply.status
