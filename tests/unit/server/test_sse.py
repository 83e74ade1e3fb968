"""Streams: available events are written together and at once, and a client that does not read delays no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from keelbolt.server.sse import GATHERED_BYTES, HEARTBEAT, Streams, event

Event = tuple[bytes, int | None]
QUIET_SECONDS = 60.0


class Client:
    """Receives the chunks of a body. While ``reading`` is cleared it does not read, and sending waits."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self.left = asyncio.Event()

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            await self.reading.wait()
            self.chunks.append(message["body"])

    async def receive(self) -> Any:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def got(self, text: bytes) -> None:
        async with asyncio.timeout(10):
            while text not in b"".join(self.chunks):  # noqa: ASYNC110 - a list sets no event
                await asyncio.sleep(0.005)


async def serve(client: Client, events: AsyncGenerator[Event, None], streams: Streams | None = None) -> None:
    streams = streams or Streams(100, heartbeat_seconds=QUIET_SECONDS)
    await streams.serve(client.receive, client.send, events, frame=bytes, failed=lambda error: str(error).encode())


def serving(client: Client, events: AsyncGenerator[Event, None], streams: Streams | None = None) -> asyncio.Task[None]:
    return asyncio.create_task(serve(client, events, streams))


async def numbered(count: int, size: int = 10) -> AsyncGenerator[Event, None]:
    for number in range(count):
        yield b"%0*d" % (size, number), number


async def test_available_events_are_written_together() -> None:
    client = Client()
    await serve(client, numbered(100))
    assert client.chunks == [b"".join([event(b"%010d" % number, seq=number) for number in range(100)]), b""]


async def test_the_size_of_a_write_is_bounded() -> None:
    """A chunk ends with the event that exceeds the limit, which bounds the cost of a client that does not read."""
    client = Client()
    await serve(client, numbered(200, 3000))
    *chunks, _ = client.chunks
    assert len(chunks) > 5
    assert all(len(chunk) < GATHERED_BYTES + 3100 for chunk in chunks)
    assert b"".join(chunks) == b"".join([event(b"%03000d" % number, seq=number) for number in range(200)])


async def test_an_event_is_written_before_the_next_is_waited_for() -> None:
    client, go_on = Client(), asyncio.Event()

    async def events() -> AsyncGenerator[Event, None]:
        yield b"one", 1
        yield b"two", 2
        await go_on.wait()
        yield b"three", 3

    task = serving(client, events())
    await client.got(b"two")
    assert client.chunks == [event(b"one", seq=1) + event(b"two", seq=2)]
    go_on.set()
    await task
    assert client.chunks[1:] == [event(b"three", seq=3), b""]


async def test_an_error_follows_the_events_before_it() -> None:
    client = Client()

    async def events() -> AsyncGenerator[Event, None]:
        yield b"one", 1
        yield b"two", 2
        raise RuntimeError("broken")

    await serve(client, events())
    assert client.chunks == [event(b"one", seq=1) + event(b"two", seq=2) + event(b"broken"), b""]


async def test_a_late_error_is_an_event() -> None:
    client = Client()

    async def events() -> AsyncGenerator[Event, None]:
        yield b"one", 1
        await asyncio.sleep(0.01)
        raise RuntimeError("broken")

    await serve(client, events())
    assert client.chunks == [event(b"one", seq=1), event(b"broken"), b""]


def leave(client: Client, _task: asyncio.Task[None]) -> None:
    client.left.set()


def cancel(_client: Client, task: asyncio.Task[None]) -> None:
    task.cancel()


@pytest.mark.parametrize("reads", [True, False], ids=["it waits", "it sends"])
@pytest.mark.parametrize("end", [leave, cancel])
async def test_an_abandoned_stream_is_cleaned_up(
    end: Callable[[Client, asyncio.Task[None]], None], *, reads: bool
) -> None:
    """The generator of the stream is closed where it waits, whether the client read everything or not."""
    client, waits, cleaned = Client(), asyncio.Event(), False

    async def events() -> AsyncGenerator[Event, None]:
        nonlocal cleaned
        yield b"one", 1
        try:
            waits.set()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            cleaned = True

    if not reads:
        client.reading.clear()
    task = serving(client, events())
    await waits.wait()
    await asyncio.sleep(0.02)
    end(client, task)
    await asyncio.sleep(0.1)
    assert cleaned
    client.reading.set()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled() is (end is cancel)


async def quiet() -> AsyncGenerator[Event, None]:
    yield b"one", 1
    await asyncio.sleep(60)


async def test_heartbeats_while_idle() -> None:
    client = Client()
    task = serving(client, quiet(), Streams(100, heartbeat_seconds=0.05))
    await client.got(HEARTBEAT * 3)
    assert client.chunks[0] == event(b"one", seq=1)
    client.left.set()
    await task
    count = len(client.chunks)
    await asyncio.sleep(0.2)
    assert len(client.chunks) == count


async def test_a_client_that_does_not_read_delays_no_heartbeat_of_another() -> None:
    streams = Streams(100, heartbeat_seconds=0.3)
    clients = [Client() for _ in range(10)]
    tasks = [serving(client, quiet(), streams) for client in clients]
    for client in clients:
        await client.got(b"one")
    stuck = {client: len(client.chunks) for client in clients[::3]}
    for client in stuck:
        client.reading.clear()
    for client in clients:
        if client not in stuck:
            await client.got(HEARTBEAT * 3)
    assert {client: len(client.chunks) for client in stuck} == stuck
    for client in clients:
        client.left.set()
    await asyncio.sleep(0.05)
    for client in clients:
        client.reading.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks)
