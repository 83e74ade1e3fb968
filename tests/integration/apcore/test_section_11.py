"""Section 11 of the design of apcore agents: load."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from benchmarks.apcore import MOST
from keelbolt.apcore import ApcoreServer, InMemoryTaskStore
from keelbolt.client import A2AClient
from keelbolt.server.settings import ServerSettings
from tests.integration.apcore.calling import task_of
from tests.integration.apcore.modules import Echo, Sleeper, Total, registry_of
from tests.integration.apcore.serving import serving
from tests.integration.apcore.test_section_5 import answer
from tests.integration.apcore.test_section_7 import data, send_params
from tests.integration.server.asgi import ask, call

BUDGET_MS = 5.0  # of the design, for protocol and storage; measured by `python -m benchmarks apcore`


async def test_section_11_1_readers_of_the_card_do_not_wait_for_a_change() -> None:
    registry = registry_of(echo=Echo())
    async with serving(registry) as app:
        reading = True
        reads = 0

        async def read() -> None:
            nonlocal reads
            while reading:
                reply = await ask(app, "GET", "/.well-known/agent.json")
                assert reply.status == 200
                reads += 1

        reader = asyncio.create_task(read())

        def register() -> None:
            for number in range(30):
                registry.register(f"m{number}", Echo())

        await asyncio.to_thread(register)
        async with asyncio.timeout(1):
            while len((await ask(app, "GET", "/.well-known/agent.json")).json["skills"]) != 31:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        reading = False
        await reader
        assert reads > 0


async def test_section_11_5_many_tasks_at_once() -> None:
    """Each task gets its own result, and none is lost."""
    count = 300
    async with serving(registry_of(total=Total())) as app:
        tasks = await asyncio.gather(
            *(answer(app, "message/send", send_params(data({"numbers": [n]}), skill="total")) for n in range(count))
        )
        found = [task["artifacts"][0]["parts"][0]["data"]["total"] for task in tasks]
        assert found == list(range(count))
        assert len({task["id"] for task in tasks}) == count


async def test_section_11_2_calls_avoid_expensive_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(MOST.values()) <= BUDGET_MS
    registry = registry_of(echo=Echo())
    async with serving(registry) as app:
        await task_of(app, "warm")
        asked: list[str] = []
        monkeypatch.setattr(registry, "get_definition", asked.append)
        for _ in range(3):
            await task_of(app, "hi")
            await ask(app, "GET", "/.well-known/agent.json")
        assert asked == []


async def test_section_11_3_ended_streams_do_not_count() -> None:
    server = ApcoreServer(registry_of(sleep=Sleeper()), metrics=True, settings=ServerSettings.of(streams=2))
    async with server:
        app = server.app
        for _ in range(3):  # each round opens two streams, and one beyond the limit
            params = send_params(data({}), skill="sleep")
            open_ = [asyncio.create_task(call(app, "message/stream", params)) for _ in range(2)]
            async with asyncio.timeout(10):
                while (await ask(app, "GET", "/metrics")).json["sse_active_streams"] < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            refused = await call(app, "message/stream", params)
            assert (refused.status, refused.header("retry-after")) == (503, "5")
            for task in (await answer(app, "tasks/list", {}))["tasks"]:
                if task["status"]["state"] in ("submitted", "working"):
                    await answer(app, "tasks/cancel", {"id": task["id"]})
            await asyncio.gather(*open_)
        assert (await ask(app, "GET", "/metrics")).json["sse_active_streams"] == 0


async def test_section_11_4_the_store_in_memory_is_bounded() -> None:
    store = InMemoryTaskStore()
    assert (store.max_capacity, store.ttl_seconds, store.max_context_messages) == (10_000, 3600.0, 100)
    store = InMemoryTaskStore(max_capacity=3)
    async with serving(registry_of(echo=Echo()), task_store=store) as app:
        tasks = [await task_of(app, f"{number}") for number in range(5)]
        kept = await store.list(limit=200)
        assert {task["id"] for task in kept["tasks"]} == {task["id"] for task in tasks[2:]}


async def test_section_11_6_a_client_keeps_its_connection() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        card: dict[str, Any] = {"name": "x", "description": "", "version": "1", "skills": [], "capabilities": {}}
        body = json.dumps(card | {"url": "http://x", "protocolVersion": "0.3.0"}).encode()
        with contextlib.suppress(asyncio.IncompleteReadError), contextlib.closing(writer):
            while await reader.readuntil(b"\r\n\r\n"):
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                writer.write(head % len(body) + body)
        closed.set()

    closed = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, A2AClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        for _ in range(3):
            await client.discover(refresh=True)
    await closed.wait()
    assert connections == 1
