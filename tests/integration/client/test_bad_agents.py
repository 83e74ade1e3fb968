"""Agents with invalid, broken, slow or misleading responses: typed errors in bounded time, and no leaked token."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from keelbolt.client import (
    A2AClient,
    A2AConnectionError,
    A2ADiscoveryError,
    A2AResponseError,
    A2AServerError,
    A2ATimeoutError,
    Event,
    Reconnect,
    TaskState,
)
from keelbolt.errors import (
    CardSignatureError,
    CredentialsMissing,
    KeelboltError,
    MethodNotFoundError,
    RateLimitedError,
    TaskNotFoundError,
    VersionNotSupportedError,
)
from keelbolt.protocol.signatures import CardKey
from tests.integration.client.bad_agent import (
    CARD_PATH,
    SSE,
    Answer,
    BadAgent,
    bad_agent,
    chunk,
    drip,
    events,
    flood,
    http,
    result,
    silence,
    slow_stream,
    status,
    task,
)

SOON = 0.3  # seconds


@pytest.fixture
async def agent() -> AsyncIterator[BadAgent]:
    async with bad_agent() as agent:
        yield agent


@pytest.fixture
async def client(agent: BadAgent) -> AsyncIterator[A2AClient]:
    async with asyncio.timeout(60), A2AClient(agent.url, retry_seconds=0.0) as client:
        yield client


def rpc_error(code: Any, message: Any = "no", status_: int = 200, data: Any = None) -> bytes:
    error = {"code": code, "message": message, "data": data}
    return http(json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode(), status_)


HTML = b"<html><body>It works!</body></html>"
TASK = task()["task"]

BAD_ANSWERS: dict[str, tuple[Answer, type[KeelboltError]]] = {
    "HTML": (http(HTML, 200, "text/html"), A2AResponseError),
    "HTML, and 404": (http(HTML, 404, "text/html"), A2AResponseError),
    "HTML of a proxy": (http(HTML, 502, "text/html"), A2AConnectionError),
    "nothing": (http(b""), A2AResponseError),
    "half of a JSON": (http(b'{"jsonrpc": "2.0", "id": 1, "res'), A2AResponseError),
    "bad UTF-8": (http(b'{"jsonrpc": "2.0", "id": 1, "result": "\xff"}'), A2AResponseError),
    "NaN": (http(b'{"jsonrpc": "2.0", "id": 1, "result": NaN}'), A2AResponseError),
    "a deep JSON": (http(b"[" * 100_000), A2AResponseError),
    "an array": (http(b"[]"), A2AResponseError),
    "no JSON-RPC": (http(b'{"hello": 1}'), A2AResponseError),
    "another id": (result(TASK, 77), A2AResponseError),
    "a task without a status": (result({"id": "t", "contextId": "c"}), A2AResponseError),
    "a task in an unknown state": (result(task("DREAMING")["task"]), A2AResponseError),
    "an error without a code": (rpc_error(None), A2AResponseError),
    "an error of its own": (rpc_error(-32603, "boom"), A2AServerError),
    "an unknown error code": (rpc_error(-31999), A2AServerError),
    "no such task": (rpc_error(-32001), TaskNotFoundError),
    "another version": (rpc_error(-32009, "only 7.0"), VersionNotSupportedError),
    "too many requests": (http(b"{}", 429, "application/json", "retry-after: 9"), RateLimitedError),
    "not for you": (http(b"", 403), CredentialsMissing),
    "compressed": (http(gzip.compress(b"{}"), 200, "application/json", "content-encoding: gzip"), A2AResponseError),
    "half of what was announced": (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{",
        A2AConnectionError,
    ),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", A2AConnectionError),
    "a closed door": (b"", A2AConnectionError),
    "silence": (silence, A2ATimeoutError),
    "a drip": (drip, A2ATimeoutError),
    "a redirect": (http(b"", 307, "text/plain", "location: /elsewhere"), A2AResponseError),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_a_bad_response_is_a_typed_error(name: str, agent: BadAgent) -> None:
    answer, kind = BAD_ANSWERS[name]
    agent.calls.append(answer)
    patience = SOON if kind is A2ATimeoutError else 20.0
    async with asyncio.timeout(30), A2AClient(agent.url, timeout=20.0, retry_seconds=0.0) as client:
        await client.discover()
        client._opened()._http.timeout = patience
        with pytest.raises(kind) as raised:
            await client.get_task("t")
    assert type(raised.value) is kind
    assert "<html" not in str(raised.value)


async def test_texts_of_an_agent_are_cut_and_printable(agent: BadAgent, client: A2AClient) -> None:
    agent.calls.append(rpc_error(-32603, "a\x1b[31m\r\nb" + "c" * 100_000))
    with pytest.raises(A2AServerError) as raised:
        await client.get_task("t")
    assert str(raised.value).isprintable()
    assert str(raised.value).startswith(f"{agent.url}: ")
    assert len(str(raised.value)) <= 600
    assert raised.value.code == -32603


async def test_a_response_is_read_up_to_a_limit(agent: BadAgent) -> None:
    agent.calls.append(flood)
    async with A2AClient(agent.url, max_answer_bytes=1_000_000) as client:
        with pytest.raises(A2AResponseError, match="more than 1000000 bytes"):
            await client.get_task("t")


# ------------------------------------------------------------------------------------------------------------ cards

BAD_CARDS: dict[str, Answer] = {
    "HTML": http(HTML, 200, "text/html"),
    "HTML, and 500": http(HTML, 500, "text/html"),
    "wrong JSON": http(b'{"name": "Bad"'),
    "a list": http(b"[1, 2]"),
    "no card": http(b'{"hello": "world"}'),
    "no interface": http(b'{"name": "Bad", "supportedInterfaces": []}'),
    "strange interfaces": http(b'{"name": "Bad", "supportedInterfaces": [7, {"url": 3}], "url": {"a": 1}}'),
    "another version": http(
        b'{"name": "Bad", "supportedInterfaces": [{"url": "http://127.0.0.1/", "protocolBinding": "JSONRPC", '
        b'"protocolVersion": "7.0"}]}'
    ),
    "a URL of files": http(
        b'{"name": "Bad", "supportedInterfaces": [{"url": "file:///etc/passwd", "protocolBinding": "JSONRPC", '
        b'"protocolVersion": "1.0"}]}'
    ),
    "huge": http(b'{"name": "' + b"x" * 3_000_000 + b'"}'),
    "endless": flood,
    "a redirect": http(b"", 302, "text/plain", "location: http://localhost/card.json"),
    "gone": http(b"", 404),
}


@pytest.mark.parametrize("name", BAD_CARDS)
async def test_a_bad_card(name: str, agent: BadAgent, client: A2AClient) -> None:
    agent.answers[CARD_PATH] = BAD_CARDS[name]
    with pytest.raises(A2ADiscoveryError):
        await client.send_message("Hi")
    assert not agent.posts


async def test_a_card_that_does_not_arrive(agent: BadAgent) -> None:
    agent.answers[CARD_PATH] = silence
    async with A2AClient(agent.url, timeout=SOON) as client:
        with pytest.raises(A2ATimeoutError):
            await client.discover()
    async with A2AClient("http://127.0.0.1:9") as client:
        with pytest.raises(A2AConnectionError) as refused:
            await client.discover()
        assert not refused.value.sent


async def test_the_card_of_older_agents(agent: BadAgent, client: A2AClient) -> None:
    agent.answers["/.well-known/agent.json"] = agent.answers.pop(CARD_PATH)
    assert (await client.agent_card)["name"] == "Bad"


async def test_a_card_that_was_modified_in_transit(agent: BadAgent) -> None:
    key = CardKey.generate("k")
    card = card_of(agent)
    card["signatures"] = [key.sign(card)]
    card["supportedInterfaces"][0]["url"] = "http://evil.example/"
    agent.answers[CARD_PATH] = http(json.dumps(card).encode())
    async with A2AClient(agent.url, card_keys=key.jwks()) as client:
        with pytest.raises(CardSignatureError):
            await client.send_message("Hi")


# ------------------------------------------------------------------------------------------------------------ tokens


async def test_a_token_follows_no_redirect(agent: BadAgent) -> None:
    async with bad_agent() as thief:
        for status_ in (301, 302, 303, 307, 308):
            redirect = http(b"", status_, "text/plain", f"location: {thief.url}/")
            agent.calls[:] = [redirect]
            agent.answers["/redirected.json"] = redirect
            async with A2AClient(agent.url, auth="secret", headers={"X-API-Key": "secret"}) as client:
                with pytest.raises(A2AResponseError):
                    await client.get_task("t")
                with pytest.raises(A2AResponseError):
                    await anext(client.stream_message("Hi"))
            async with A2AClient(f"{agent.url}/redirected.json", auth="secret") as client:
                with pytest.raises(A2ADiscoveryError):
                    await client.discover()
        assert thief.asked == []
        assert all(each.headers.get("authorization") == "Bearer secret" for each in agent.posts)


async def test_a_token_is_not_sent_to_the_origin_of_a_card(agent: BadAgent) -> None:
    async with bad_agent() as thief:
        thief.calls.append(result(TASK))
        agent.answers[CARD_PATH] = agent.card(f"{thief.url}/")
        async with A2AClient(agent.url, auth="secret") as client:
            with pytest.raises(A2ADiscoveryError, match="trusted_origins"):
                await client.get_task("t")
        assert thief.asked == []
        async with A2AClient(agent.url) as client:  # without a secret there is no restriction
            assert (await client.get_task("t")).id == "t"
        async with A2AClient(agent.url, auth="secret", trusted_origins=[thief.url]) as client:
            await client.get_task("t")
        assert [each.headers.get("authorization") for each in thief.asked] == [None, "Bearer secret"]


async def test_a_card_by_https_does_not_switch_to_http() -> None:
    interfaces = [{"url": "http://agent.example/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    card = {"name": "A", "supportedInterfaces": interfaces}
    async with A2AClient("https://agent.example", card=card) as client:
        with pytest.raises(A2ADiscoveryError, match="trusted_origins"):
            await client.get_task("t")


async def test_the_key_set_is_requested_without_a_token(agent: BadAgent) -> None:
    async with bad_agent() as keys:
        async with A2AClient(agent.url, auth="secret", card_keys=f"{keys.url}/keys.json") as client:
            with pytest.raises(A2ADiscoveryError):
                await client.discover()
        assert [each.headers.get("authorization") for each in keys.asked] == [None]


async def test_cookies_are_not_stored(agent: BadAgent, client: A2AClient) -> None:
    agent.calls.append(http(b"{}", 200, "application/json", "set-cookie: session=1"))
    for _ in range(2):
        with pytest.raises(A2AResponseError):
            await client.get_task("t")
    assert not any("cookie" in each.headers for each in agent.asked)


@pytest.mark.parametrize("kind", ["token", "header", "function", "coroutine", "httpx2"])
async def test_ways_to_authenticate(kind: str, agent: BadAgent) -> None:
    import httpx2

    async def later() -> str:
        return "secret"

    ways: dict[str, Any] = {
        "token": "secret",
        "header": "Bearer secret",
        "function": lambda: "secret",
        "coroutine": later,
        "httpx2": httpx2.BasicAuth("alice", "secret"),
    }
    agent.calls.append(result(TASK))
    async with A2AClient(agent.url, auth=ways[kind]) as client:
        await client.get_task("t")
    wanted = "Basic YWxpY2U6c2VjcmV0" if kind == "httpx2" else "Bearer secret"
    assert agent.posts[0].headers["authorization"] == wanted


# ---------------------------------------------------------------------------------------------------------- streams


def card_of(agent: BadAgent) -> dict[str, Any]:
    """Return the card, so that a client with a short timeout need not fetch it."""
    found: dict[str, Any] = json.loads(agent.card().partition(b"\r\n\r\n")[2])
    return found


async def all_of(client: A2AClient) -> list[Event]:
    return [event async for event in client.stream_message("Hi", message_id="m")]


def texts(found: list[Event]) -> list[str]:
    return [event.text for event in found if event.artifact]


async def test_a_stream_that_breaks_at_any_byte(agent: BadAgent, client: A2AClient) -> None:
    """The client gets incomplete events again by Last-Event-ID, and complete ones once."""
    whole = SSE
    for seq, value in ((1, task()), (2, chunk("a")), (3, chunk("b")), (4, status("COMPLETED"))):
        whole += b"id: %d\ndata: " % seq + json.dumps({"jsonrpc": "2.0", "id": 1, "result": value}).encode() + b"\n\n"
    following = {
        None: events((1, task()), (2, chunk("a")), (3, chunk("b")), (4, status("COMPLETED"))),
        "1": events((2, chunk("a")), (3, chunk("b")), (4, status("COMPLETED"))),
        "2": events((3, chunk("b")), (4, status("COMPLETED"))),
        "3": events((4, status("COMPLETED"))),
    }

    async def go_on(asked: Any, writer: asyncio.StreamWriter) -> None:
        again = following[asked.headers.get("last-event-id")]
        assert callable(again)
        await again(asked, writer)

    async def cut(asked: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(whole.replace(b'"id": 1,', b'"id": %d,' % asked.json["id"])[:offset])
        await writer.drain()

    for offset in range(0, len(whole), 41):
        agent.calls[:] = [cut, go_on]
        found = await all_of(client)
        assert texts(found) == ["a", "b"], offset
        assert [event.id for event in found] == ["1", "2", "3", "4"]
        assert found[-1].state is TaskState.completed


async def test_repeated_ids_are_skipped(agent: BadAgent, client: A2AClient) -> None:
    agent.calls[:] = [
        events((1, task()), (2, chunk("a")), (2, chunk("a")), (1, chunk("x")), (3, chunk("b"))),
        events((2, chunk("a")), (3, chunk("b")), (9, chunk("c")), (10, status("COMPLETED"))),
    ]
    found = await all_of(client)
    assert texts(found) == ["a", "b", "c"]
    assert agent.posts[1].headers["last-event-id"] == "3"
    assert agent.posts[1].json["method"] == "SubscribeToTask"


async def test_a_gap_is_a_snapshot(agent: BadAgent, client: A2AClient) -> None:
    now = task("WORKING", artifacts=[{"artifactId": "a", "parts": [{"text": "a"}, {"text": "b"}]}])
    agent.calls[:] = [
        events((1, task()), (2, chunk("a"))),
        events((8, now), (9, chunk("c")), (10, status("COMPLETED"))),
    ]
    found = await all_of(client)
    assert [event.snapshot for event in found] == [False, False, True, False, False]
    assert found[2].text == "ab"


@pytest.mark.parametrize("seq", ["x", "-1", "9" * 30])
async def test_an_id_that_is_not_a_number(seq: str, agent: BadAgent, client: A2AClient) -> None:
    data = json.dumps({"jsonrpc": "2.0", "id": 1, "result": task()})
    agent.calls.append(SSE + f"id: {seq}\ndata: {data}\n\n".encode())
    with pytest.raises(A2AResponseError):
        await all_of(client)


BAD_STREAMS: dict[str, tuple[Answer, type[KeelboltError]]] = {
    "no JSON": (SSE + b"data: hello\n\n", A2AResponseError),
    "no event": (SSE + b'data: {"jsonrpc":"2.0","id":1,"result":{"nothing":1}}\n\n', A2AResponseError),
    "an error": (SSE + b'data: {"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"x"}}\n\n', TaskNotFoundError),
    "HTML": (http(HTML, 200, "text/html"), A2AResponseError),
    "HTML as a stream": (SSE + HTML, A2AConnectionError),
    "silence": (silence, A2ATimeoutError),
    "an open stream and silence": (slow_stream, A2ATimeoutError),
    "it ends at once": (SSE, A2AConnectionError),
    "no line ends": (SSE + b"data: " + b"x" * 2_000_000, A2AResponseError),
}


@pytest.mark.parametrize("name", BAD_STREAMS)
async def test_a_bad_stream_is_a_typed_error(name: str, agent: BadAgent) -> None:
    answer, kind = BAD_STREAMS[name]
    agent.calls.append(answer)
    patience = SOON if kind is A2ATimeoutError else 20.0
    options: dict[str, Any] = {"timeout": patience, "idle_seconds": patience, "max_answer_bytes": 1_000_000}
    async with (
        asyncio.timeout(60),
        A2AClient(agent.url, reconnect_seconds=0.5, card=card_of(agent), **options) as client,
    ):
        with pytest.raises(kind) as raised:
            await all_of(client)
        assert type(raised.value) is kind


async def test_an_agent_without_progress_is_given_up(agent: BadAgent) -> None:
    """The client reports its attempts, makes them at growing intervals, and stops."""
    reconnects: list[Reconnect] = []

    async def stuck(asked: Any, writer: asyncio.StreamWriter) -> None:
        working = task("WORKING")["task"]
        writer.write(SSE if asked.json["method"] == "SubscribeToTask" else result(working, asked.json["id"]))
        await writer.drain()

    agent.calls[:] = [events((1, task()), (2, chunk("a"))), stuck]
    async with A2AClient(agent.url, reconnect_seconds=1.5, on_reconnect=reconnects.append) as client:
        stream = client.stream_message("Hi")
        assert texts([await anext(stream), await anext(stream)]) == ["a"]
        with pytest.raises(A2AConnectionError):
            await anext(stream)
    assert 2 <= len(reconnects) <= 12
    assert [each.attempt for each in reconnects] == list(range(1, len(reconnects) + 1))
    assert all(each.task_id == "t" for each in reconnects)


async def test_a_message_is_not_repeated_to_an_agent_without_deduplication(agent: BadAgent) -> None:
    agent.answers[CARD_PATH] = agent.card(resume=False)
    agent.calls.append(b"")
    async with A2AClient(agent.url) as client:
        with pytest.raises(A2AConnectionError) as broken:
            await client.send_message("Hi")
        assert broken.value.sent
        with pytest.raises(A2AConnectionError):
            await all_of(client)
    assert len(agent.posts) == 2


async def test_a_message_is_repeated_to_an_agent_with_deduplication(agent: BadAgent) -> None:
    agent.calls[:] = [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", events((1, task("COMPLETED")))]
    async with A2AClient(agent.url) as client:
        [event] = await all_of(client)
        assert event.state is TaskState.completed
    assert {each.json["params"]["message"]["messageId"] for each in agent.posts} == {"m"}
    assert len(agent.posts) == 3


async def test_every_attempt_of_a_send_has_the_same_idempotency_key(agent: BadAgent) -> None:
    """Retries and reconnects keep the key of their call; another call has another key, or the caller's own."""
    async with A2AClient(agent.url) as client:
        agent.calls[:] = [b"", http(b"", 503), result(task("COMPLETED"), 3)]
        await client.send_message("Hello")
        agent.calls[:] = [b"", b"", events((1, task("COMPLETED")))]
        await all_of(client)
        agent.calls[:] = [result(task("COMPLETED"), 7)]
        await client.send_message("Hello", idempotency_key="mine")
    keys = [each.headers["idempotency-key"] for each in agent.posts]
    assert len(keys) == 7
    assert len(set(keys[:3])) == len(set(keys[3:6])) == 1
    assert len({keys[0], keys[3], keys[6]}) == 3
    assert keys[6] == "mine"


async def test_events_of_another_task(agent: BadAgent, client: A2AClient) -> None:
    other = chunk("x")
    other["artifactUpdate"]["taskId"] = "other"
    agent.calls.append(events((1, task()), (2, other)))
    with pytest.raises(A2AResponseError, match="another task"):
        await all_of(client)


async def test_a_list_of_tasks_that_repeats_a_page_token(agent: BadAgent, client: A2AClient) -> None:
    async def page(asked: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(result({"tasks": [TASK], "nextPageToken": "again"}, asked.json["id"]))
        await writer.drain()

    agent.calls.append(page)
    with pytest.raises(A2AResponseError, match="repeated a page token"):
        async for _ in client.list_tasks():
            pass


async def test_another_interface_when_the_first_fails(agent: BadAgent) -> None:
    interfaces = [
        {"url": "http://127.0.0.1:9/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "grpc.example:443", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {"url": agent.url + "/nothing", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        {"url": agent.url + "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
    ]
    agent.answers[CARD_PATH] = agent.card(supportedInterfaces=interfaces)

    async def answered(asked: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(result(TASK, asked.json["id"]))
        await writer.drain()

    agent.calls.append(answered)
    async with A2AClient(agent.url) as client:
        assert (await client.get_task("t")).id == "t"
        before = len(agent.asked)
        assert (await client.get_task("t")).id == "t"
        assert len(agent.asked) == before + 1  # the client remembers the working interface
    agent.calls[:] = [events((1, task("COMPLETED")))]
    async with A2AClient(agent.url) as client:
        assert [event.last for event in await all_of(client)] == [True]


async def test_an_outage_does_not_change_the_preferred_interface(agent: BadAgent) -> None:
    """Neither an outage nor an unsupported operation changes the preference."""
    interfaces = [
        {"url": agent.url + "/", "protocolBinding": "JSONRPC", "protocolVersion": version} for version in ("1.0", "0.3")
    ]
    agent.answers[CARD_PATH] = agent.card(supportedInterfaces=interfaces)

    async def answered(asked: Any, writer: asyncio.StreamWriter) -> None:
        known = asked.json["method"] == "GetTask"
        writer.write(result(TASK, asked.json["id"]) if known else rpc_error(-32601))
        await writer.drain()

    agent.calls.append(answered)
    async with A2AClient(agent.url, retry_seconds=0.0) as client:
        await client.get_task("t")
        with pytest.raises(MethodNotFoundError):
            await client.cancel_task("t")
        transports = await client._opened().transports()
        for transport in transports:
            object.__setattr__(transport.endpoint, "url", "http://127.0.0.1:9/")  # no server listens there
        with pytest.raises(A2AConnectionError):
            await client.get_task("t")
        assert await client._opened().transports() == transports
