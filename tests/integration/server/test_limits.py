"""Limits on the size and speed of requests: in this process for every binding, and over a real connection."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.server.http import check_headers, read_body
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from tests.integration.server.asgi import ask, call, rpc
from tests.integration.server.entries import ENTRIES, Entry, RequestFields, send_fields
from tests.integration.server.loopback import served, talked

CARD = AgentCardConfig(
    name="Agent",
    description="Echoes.",
    capabilities=CapabilitiesConfig(streaming=True, push_notifications=True, extended_agent_card=True),
)
JSON = ("content-type", "application/json")
POSTS = [entry for entry in ENTRIES if not entry.tenant and (not entry.path or entry.method == "POST")]


async def echo(ctx: TaskContext) -> None:
    await ctx.complete(ctx.user_text[:100])


@asynccontextmanager
async def agent(**settings: Any) -> AsyncIterator[ASGIApp]:
    async with A2AServer(worker=echo, agent_card=CARD, settings=ServerSettings(**settings)) as server:
        yield server.app


# ------------------------------------------------------------------------------------------------- in every binding


@pytest.mark.parametrize("entry", POSTS, ids=str)
async def test_a_body_that_is_too_large_is_413(entry: Entry) -> None:
    """The limit applies to an announced size and to a body that arrives in pieces."""
    fields = RequestFields(task="t", config="c", text="x" * 5000)
    async with agent(body_bytes=1000) as app:
        request = entry.request(fields)
        path, headers = request["path"], request["headers"]
        announced = [*headers, ("content-length", "5000")]
        whole = await ask(app, "POST", path, headers=announced, body=b"{}")
        pieces = await ask(app, "POST", path, headers=headers, body=[b" " * 300] * 5)
        lying = await ask(app, "POST", path, headers=[*headers, ("content-length", "1")], body=b" " * 5000)
        assert [reply.status for reply in (whole, pieces, lying)] == [413, 413, 413]


@pytest.mark.parametrize("length", ["²", "9" * 5000, "-1", "1e9", "", " 7", "0x10"])
async def test_an_unusual_content_length_is_not_a_server_error(length: str) -> None:
    async with agent() as app:
        reply = await ask(app, "POST", "/", headers=[JSON, ("content-length", length)], body=rpc("ListTasks", {}))
        assert reply.status in (200, 413)


@pytest.mark.parametrize("entry", POSTS, ids=str)
async def test_a_body_that_does_not_arrive_is_408(entry: Entry) -> None:
    """A body that never arrives, or arrives a byte at a time, is refused after body_seconds."""
    request = entry.request(RequestFields(task="t", config="c"))

    for first in (None, b"{"):
        sent: list[Message] = []

        async def receive(first: bytes | None = first) -> Message:
            if first is None:
                await asyncio.sleep(3600)
            await asyncio.sleep(0.01)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message: Message, sent: list[Message] = sent) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": request["path"],
            "headers": [(name.encode(), value.encode()) for name, value in request["headers"]],
            "query_string": b"",
        }
        async with agent(body_seconds=0.05) as app:
            begin = time.monotonic()
            await app(scope, receive, send)
        assert sent[0]["status"] == 408
        assert time.monotonic() - begin < 5


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if not entry.tenant], ids=str)
async def test_too_many_headers_are_431(entry: Entry) -> None:
    async with agent(header_bytes=2000) as app:
        fields = RequestFields(task="t", config="c")
        flood = [(f"x-{number}", "y" * 20) for number in range(200)]
        assert (await send_fields(app, entry, fields, flood)).status == 431
        assert (await send_fields(app, entry, fields, [("x-one", "y" * 3000)])).status == 431
        assert (await send_fields(app, entry, fields)).status != 431


async def test_a_long_path_or_query_counts_too() -> None:
    async with agent(header_bytes=2000) as app:
        assert (await ask(app, "GET", "/tasks/" + "x" * 3000)).status == 431
        assert (await ask(app, "GET", "/tasks", query="x=" + "y" * 3000)).status == 431


@pytest.mark.parametrize("entry", POSTS, ids=str)
@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/x-www-form-urlencoded", "é"])
async def test_a_body_that_is_not_json_is_415(entry: Entry, kind: str) -> None:
    async with agent() as app:
        request = entry.request(RequestFields(task="t", config="c"))
        headers = [("content-type", kind), ("a2a-version", entry.version.value)]
        assert (await ask(app, "POST", request["path"], headers=headers, body=request["body"])).status == 415


async def test_a_page_of_another_origin_can_not_omit_the_type() -> None:
    """Browsers send a preflight for JSON to another origin, but not for bytes without a type."""
    body = rpc("ListTasks", {})
    async with agent(cors_origins=("https://page.example", "null")) as app:
        for headers, status in (
            ([], 200),
            ([("origin", "https://page.example"), ("host", "localhost:8000")], 415),
            ([("origin", "null"), ("host", "localhost:8000")], 415),
            ([("origin", "http://localhost:8000"), ("host", "localhost:8000")], 200),
            ([JSON, ("origin", "https://page.example"), ("host", "localhost:8000")], 200),
        ):
            assert (await ask(app, "POST", "/", headers=headers, body=body)).status == status


async def test_deep_json_and_many_parts_are_413() -> None:
    async with agent() as app:
        deep = b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        assert (await ask(app, "POST", "/", headers=[JSON], body=deep)).status == 413
        parts = [{"text": "x"}] * 100_000
        message = {"messageId": "m", "role": "ROLE_USER", "parts": parts}
        assert (await call(app, "SendMessage", {"message": message})).status == 413


async def test_many_small_pieces_use_little_memory() -> None:
    """A body that arrives byte by byte is not kept as a list of bytes."""
    pieces = 200_000
    left = [pieces]

    async def receive() -> Message:
        left[0] -= 1
        return {"type": "http.request", "body": b"x", "more_body": left[0] > 0}

    tracemalloc.start()
    try:
        body = await read_body({"headers": []}, receive, 10**6)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(body) == pieces
    assert peak < 4 * pieces


def test_headers_are_counted_whole() -> None:
    check_headers({"path": "/", "query_string": b"", "headers": [(b"a", b"b")]}, 3)


# --------------------------------------------------------------------------------------------- over a real connection


def limited(**settings: Any) -> A2AServer:
    return A2AServer(worker=echo, agent_card=CARD, settings=ServerSettings(**settings))


HEAD = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


async def test_a_slow_connection_is_closed() -> None:
    """Silence, half of the headers, slow header lines and empty lines after a response all end in time."""
    async with served(limited(header_seconds=0.5)) as port:
        begin = time.monotonic()
        silent, half, dripping, lines = await asyncio.gather(
            talked(port),
            talked(port, HEAD),
            talked(port, HEAD, *[b"x: y\r\n"] * 200, pause=0.05),
            talked(port, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", *[b"\r\n"] * 200, pause=0.05),
        )
        assert time.monotonic() - begin < 9
        assert silent == b""
        assert half.startswith(b"HTTP/1.1 408 ")
        assert dripping.startswith(b"HTTP/1.1 408 ")
        assert lines.startswith(b"HTTP/1.1 200 ")


async def test_endless_headers_are_cut() -> None:
    async with served(limited(header_bytes=10_000)) as port:
        assert (await talked(port, HEAD, b"x: " + b"y" * 200_000)).startswith(b"HTTP/1.1 431 ")
        assert (await talked(port, HEAD, *[b"x: y\r\n" * 100] * 50)).startswith(b"HTTP/1.1 431 ")
        assert (await talked(port, b"GET /" + b"x" * 200_000)).startswith(b"HTTP/1.1 431 ")


async def test_a_slow_body_gets_a_response_and_the_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keelbolt.server.processes.LINGER_SECONDS", 0.5)
    async with served(limited(body_seconds=0.3)) as port:
        slow = await talked(port, HEAD + b"content-length: 1000\r\n\r\n", *[b" "] * 100, pause=0.1, patience=9)
        assert slow.startswith(b"HTTP/1.1 408 ")
        chunked = HEAD + b"transfer-encoding: chunked\r\n\r\n"
        assert (await talked(port, chunked, *[b"1\r\n \r\n"] * 100, pause=0.1, patience=9)).startswith(b"HTTP/1.1 408 ")


async def test_a_connection_stays_open_after_an_error() -> None:
    """Params that are not an object, and many requests in one packet, each get a response on the same connection."""
    bodies = [rpc("GetTask", params, id_=number) for number, params in enumerate(([1], "abc", 7, {"id": "x"}, None))]
    requests = b"".join(HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body) for body in bodies)
    async with served(limited(header_seconds=1.0)) as port:
        got = await talked(port, requests, patience=2)
    answers = [part.partition(b"\r\n\r\n")[2] for part in got.split(b"HTTP/1.1 ")[1:]]
    assert [json.loads(answer)["id"] for answer in answers] == [0, 1, 2, 3, 4]


async def test_others_are_served_during_many_slow_requests() -> None:
    async with served(limited(header_seconds=3.0, body_seconds=3.0)) as port:
        dawdling = [asyncio.create_task(talked(port, HEAD)) for _ in range(100)]
        dawdling += [asyncio.create_task(talked(port, HEAD + b"content-length: 9\r\n\r\n{")) for _ in range(100)]
        await asyncio.sleep(0.2)
        begin = time.monotonic()
        request = b"GET /tasks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        replies = [await talked(port, request) for _ in range(20)]
        assert time.monotonic() - begin < 2
        assert all(reply.startswith(b"HTTP/1.1 200 ") for reply in replies)
        for task in dawdling:
            task.cancel()
        await asyncio.gather(*dawdling, return_exceptions=True)


@pytest.mark.parametrize("cancels", [False, True])
async def test_a_stream_ends_when_its_client_leaves(cancels: bool) -> None:
    """The stream ends at once, not at the next heartbeat, so that abandoned streams do not use up the limit.

    The task continues, unless the agent is configured to cancel on disconnect.
    """

    async def wait(ctx: TaskContext) -> None:
        await ctx.send_status("on it")
        await ctx.sleep(3600)

    settings = ServerSettings(streams=3, heartbeat_stream_seconds=3600, cancel_on_disconnect=cancels)
    async with A2AServer(worker=wait, agent_card=CARD, settings=settings) as server:
        before = asyncio.all_tasks()
        for number in range(20):
            message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "x"}]}
            left = asyncio.Event()
            chunks = [rpc("SendStreamingMessage", {"message": message})]

            async def receive(chunks: list[bytes] = chunks, left: asyncio.Event = left) -> Message:
                if chunks:
                    return {"type": "http.request", "body": chunks.pop(), "more_body": False}
                await left.wait()
                return {"type": "http.disconnect"}

            async def send(message: Message, left: asyncio.Event = left) -> None:
                assert message.get("status", 200) == 200
                if b"on it" in message.get("body", b""):
                    left.set()

            scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}
            async with asyncio.timeout(10):
                await server.app(scope, receive, send)
        assert server.routes.streams.open == 0
        state = "CANCELED" if cancels else "WORKING"
        async with asyncio.timeout(10):
            while True:
                listed = (await call(server.app, "ListTasks", {})).json["result"]["tasks"]
                if {task["status"]["state"] for task in listed} == {f"TASK_STATE_{state}"}:
                    break
                await asyncio.sleep(0.05)
        assert len(listed) == 20
        assert {task.get_name() for task in asyncio.all_tasks()} <= {task.get_name() for task in before}
