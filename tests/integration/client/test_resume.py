"""Streams over a network that breaks, and from servers that die: each event once, in order."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from keelbolt.client import A2AClient, Event, Reconnect, TaskState
from keelbolt.server import A2AServer
from keelbolt.testing.proxy import Proxy
from tests.integration.client.serving import CARD, COMBINATIONS, echo, our_agent, serving

COUNTER = Path(__file__).with_name("agent_process.py")


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def gathered(events: list[Event]) -> str:
    """Return the artifact that a reader assembles from its events."""
    parts: list[str] = []
    for event in events:
        if event.snapshot and event.task is not None:
            parts = [part.text or "" for made in event.task.artifacts for part in made.parts]
        elif event.artifact is not None:
            parts = [*parts, event.text] if getattr(event.value, "append", False) else [event.text]
    return "".join(parts)


async def cut_often(proxy: Proxy, times: int, chance: random.Random, most_bytes: int) -> None:
    """Break connections after some bytes of the response: in headers, between events, within events."""
    for _ in range(times):
        proxy.cut_after(chance.randrange(1, most_bytes), "down")
        while proxy._left["down"] is not None:  # noqa: ASYNC110 - the proxy has no event for it
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_connection_of_a_finished_stream_is_used_again(binding: str) -> None:
    async with our_agent() as direct, Proxy("127.0.0.1", port_of(direct)) as proxy:
        async with A2AClient(proxy.url(direct), bindings=[binding]) as client:
            for _ in range(3):
                assert [event async for event in client.stream_message("stream 2")][-1].last
        assert proxy.connections == 1


@pytest.mark.parametrize(
    ("spoken", "chunks", "cuts"),
    [(COMBINATIONS[0], 1000, 50), *((spoken, 120, 6) for spoken in COMBINATIONS[1:])],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else str(value),
)
async def test_a_connection_that_breaks_repeatedly(
    spoken: tuple[str, str], chunks: int, cuts: int, tmp_path: Path, full: bool
) -> None:
    """Every event arrives exactly once and in order, for any number of breaks."""
    chunks, cuts = (1000, 50) if full else (chunks, cuts)
    reconnects: list[Reconnect] = []
    binding, version = spoken
    async with our_agent(f"sqlite:///{tmp_path}/agent.db") as direct, Proxy("127.0.0.1", port_of(direct)) as proxy:
        options: dict[str, Any] = {"bindings": [binding], "versions": [version]}
        async with A2AClient(proxy.url(direct), on_reconnect=reconnects.append, **options) as client:
            events: list[Event] = []
            cutting: asyncio.Task[None] | None = None
            async with asyncio.timeout(100):
                async for event in client.stream_message(f"stream {chunks}"):
                    events.append(event)
                    if cutting is None:
                        cutting = asyncio.create_task(cut_often(proxy, cuts, random.Random(7), 3000))
            assert cutting is not None
            assert cutting.done(), f"only {len(reconnects)} cuts"
        async with A2AClient(direct, **options) as client:
            task_id = str(events[0].task_id)
            truth = [event async for event in client.subscribe(task_id, after=events[0].id)]
    assert len(reconnects) >= cuts
    assert not any(event.snapshot for event in events)
    assert events[1:] == truth
    assert gathered(events) == "".join(f"{number} " for number in range(chunks))
    assert events[-1].state is TaskState.completed


async def test_a_break_at_any_byte_of_the_beginning(tmp_path: Path) -> None:
    """Before the first event, the client sends the message again: one task with its complete result."""
    async with (
        our_agent(f"sqlite:///{tmp_path}/agent.db") as direct,
        Proxy("127.0.0.1", port_of(direct)) as proxy,
        A2AClient(proxy.url(direct)) as client,
    ):
        await client.discover()
        for offset in [*range(1, 200, 37), *range(200, 3000, 310)]:
            proxy.cut_after(offset, "down")
            async with asyncio.timeout(20):
                events = [event async for event in client.stream_message("stream 10", context_id=f"c{offset}")]
            proxy.allow()
            assert gathered(events) == "0 1 2 3 4 5 6 7 8 9 ", offset
            assert len([task async for task in client.list_tasks(f"c{offset}")]) == 1


async def test_a_draining_server_passes_its_streams_to_another(tmp_path: Path) -> None:
    """A draining server ends its streams before their tasks: the client waits as requested, and continues."""
    storage = f"sqlite:///{tmp_path}/agent.db"
    servers = [A2AServer(worker=echo, agent_card=CARD, storage=storage) for _ in range(2)]
    reconnects: list[Reconnect] = []
    async with (
        serving(servers[0].app) as first,
        serving(servers[1].app) as second,
        Proxy("127.0.0.1", port_of(first)) as proxy,
        A2AClient(proxy.url(first), on_reconnect=reconnects.append) as client,
        asyncio.timeout(60),
    ):
        events: list[Event] = []
        async for event in client.stream_message("stream 100 0.005"):
            events.append(event)
            if len(events) == 20:
                proxy._target = ("127.0.0.1", port_of(second))
                servers[0].drain()
    assert [each.seconds >= 1.0 for each in reconnects] == [True]
    assert not any(event.snapshot for event in events)
    assert gathered(events) == "".join(f"{number} " for number in range(100))


async def listening(port: int) -> None:
    """Wait until the port accepts connections; the process prints it earlier."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


@asynccontextmanager
async def processes(count: int, storage: str) -> AsyncIterator[list[tuple[str, asyncio.subprocess.Process]]]:
    """Start agents in their own processes on one storage; return their URLs."""
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, str(COUNTER), storage, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        for _ in range(count)
    ]
    try:
        found = []
        for child in children:
            assert child.stdout is not None
            async with asyncio.timeout(60):
                url = (await child.stdout.readline()).decode().strip()
                await listening(port_of(url))
            found.append((url, child))
        yield found
    finally:
        for child in children:
            if child.returncode is None:
                child.kill()
            await child.wait()


async def test_servers_that_are_killed_while_others_take_over(tmp_path: Path) -> None:
    """The client continues at the next process, which has the task and its log: no loss, no repeats."""
    storage = f"sqlite:///{tmp_path}/agent.db"
    async with (
        processes(3, storage) as ((first, one), (second, two), (third, _)),
        Proxy("127.0.0.1", port_of(first)) as proxy,
    ):
        events: list[Event] = []
        deaths = {150: (one, second), 400: (two, third)}
        async with A2AClient(f"http://127.0.0.1:{proxy.port}") as client, asyncio.timeout(100):
            async for event in client.stream_message("1000"):
                events.append(event)
                if len(events) in deaths:
                    child, following = deaths[len(events)]
                    child.kill()
                    proxy._target = ("127.0.0.1", port_of(following))
                    proxy.cut()
        async with A2AClient(third) as client:
            truth = [event async for event in client.subscribe(str(events[0].task_id), after=events[0].id)]
    assert not any(event.snapshot for event in events)
    assert events[1:] == truth
    ids = [int(event.id or 0) for event in events]
    assert ids == sorted(set(ids))
    assert gathered(events) == "".join(f"{number} " for number in range(1000))
    assert [event.state for event in events].count(TaskState.completed) == 1
