"""Tasks that an agent returns unfinished, and reused connections that died."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from keelbolt.client import A2AClient, A2AConnectionError, SyncA2AClient, Task, TaskState, text_of
from keelbolt.errors import KeelboltError
from tests.integration.client.bad_agent import BadAgent, bad_agent, result, task


@pytest.fixture
async def agent() -> AsyncIterator[BadAgent]:
    async with bad_agent() as agent:
        yield agent


async def test_a_task_that_is_returned_unfinished_is_waited_for(agent: BadAgent) -> None:
    """Some servers return `submitted` for every send."""
    over = task("COMPLETED", artifacts=[{"artifactId": "a", "parts": [{"text": "at last"}]}])["task"]

    async def answered(asked: Any, writer: asyncio.StreamWriter) -> None:
        first = asked.json["method"] == "SendMessage"
        looks.append(asked.json["method"])
        value = task("SUBMITTED") if first else over if len(looks) > 3 else task("WORKING")["task"]
        writer.write(result(value, asked.json["id"]))
        await writer.drain()

    looks: list[str] = []
    agent.calls[:] = [answered] * 50
    async with A2AClient(agent.url, timeout=20.0) as client:
        assert text_of(await client.send_message("Hi")) == "at last"
        assert looks == ["SendMessage", "GetTask", "GetTask", "GetTask"]
        looks.clear()
        early = await client.send_message("Hi", return_immediately=True)
        assert isinstance(early, Task)
        assert (early.status.state, looks) == (TaskState.submitted, ["SendMessage"])
        started = asyncio.get_running_loop().time()
        looks.clear()
        agent.calls[:] = [
            result(task("WORKING"), 6),
            *[result(task("WORKING")["task"], number) for number in range(7, 40)],
        ]
        unfinished = await client.send_message("Hi", timeout=0.5)
        assert isinstance(unfinished, Task)
        assert unfinished.status.state is TaskState.working
        assert asyncio.get_running_loop().time() - started >= 0.4


@pytest.mark.parametrize("broken", [False, True], ids=["silent", "broken"])
async def test_an_unfinished_task_is_returned_if_it_can_not_be_loaded(agent: BadAgent, *, broken: bool) -> None:
    """An exception would lose the task's id, and the caller would send the message again."""

    async def silent(_asked: Any, writer: asyncio.StreamWriter) -> None:
        if broken:
            writer.close()
        else:
            await asyncio.sleep(20)

    agent.calls[:] = [result(task("WORKING"), 1), silent]
    started = asyncio.get_running_loop().time()
    async with A2AClient(agent.url, timeout=30.0, retry_seconds=0.2) as client:
        found = await client.send_message("Hi", timeout=1.0)
    assert isinstance(found, Task)
    assert found.status.state is TaskState.working
    assert asyncio.get_running_loop().time() - started < 10


async def test_closing_the_blocking_client_ends_the_calls_of_other_threads(agent: BadAgent) -> None:
    called = asyncio.Event()

    async def busy(_asked: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        called.set()

    agent.calls[:] = [busy]
    client = SyncA2AClient(agent.url, retry_seconds=60.0)
    call = asyncio.ensure_future(asyncio.to_thread(client.get_task, "t"))
    await called.wait()
    await asyncio.sleep(0.1)  # the call waits for its next attempt
    await asyncio.to_thread(client.close)
    with pytest.raises(KeelboltError, match="this client is closed"):
        await asyncio.wait_for(call, 10)


async def test_a_dead_connection_is_replaced_for_a_call_that_may_be_repeated() -> None:
    """A server closes a reused connection at the moment when the next request is sent."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        number = json.loads(await reader.readexactly(length))["id"]
        body = json.dumps({"jsonrpc": "2.0", "id": number, "result": task("WORKING")["task"]}).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await writer.drain()
        with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")  # the server closes when the next request arrives
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    card = {"name": "x", "url": url, "protocolVersion": "1.0"}
    async with server, A2AClient(url, card=card, retry_seconds=0.0) as client:
        assert (await client.get_task("t")).id == "t"
        assert (await client.get_task("t")).id == "t"
        assert connections == 2
        with pytest.raises(A2AConnectionError, match=url):
            await client.cancel_task("t")
