"""Receivers of webhooks on loopback: they record requests, and respond as the test requires."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def answer(status: int, *lines: str) -> bytes:
    """Return a short response."""
    return "\r\n".join([f"HTTP/1.1 {status} Some Reason", "content-length: 0", *lines, "", ""]).encode()


@dataclass(slots=True)
class Arrival:
    """A request that arrived, and its connection."""

    connection: int
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def seq(self) -> int:
        return int(self.id.rpartition(":")[2])

    @property
    def config(self) -> str:
        return self.id.split(":")[1]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answering = Callable[[Arrival, asyncio.StreamWriter], Awaitable[bytes]]


async def fine(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
    return OK


@dataclass(slots=True)
class Receiver:
    """``answering`` may be replaced at any time; its return value is the response."""

    arrivals: list[Arrival] = field(default_factory=list)
    answering: Answering = fine
    port: int = 0
    connections: int = 0
    refused: int = 0  # handshakes that failed
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def always(self, status: int, *lines: str) -> None:
        async def answering(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
            return answer(status, *lines)

        self.answering = answering

    def seqs(self, config: str | None = None) -> list[int]:
        """Return the numbers of the events in order of arrival."""
        return [arrival.seq for arrival in self.arrivals if config in (None, arrival.config)]

    def first_seqs(self, config: str | None = None) -> list[int]:
        """The same, without repeats."""
        return list(dict.fromkeys(self.seqs(config)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers["content-length"]))
                arrival = Arrival(number, first.split()[1], headers, body)
                response = await self.answering(arrival, writer)
                self.arrivals.append(arrival)
                writer.write(response)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    def hang_up(self) -> None:
        """Close every connection."""
        for writer in tuple(self._writers):
            writer.transport.abort()


@contextlib.asynccontextmanager
async def receiving(
    answering: Answering = fine, *, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[Receiver]:
    """A receiver that listens until the end of the block."""
    receiver = Receiver(answering=answering)
    handlers: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.create_task(receiver.serve(reader, writer))
        handlers.add(handler)
        handler.add_done_callback(handlers.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        receiver.hang_up()
        for handler in tuple(handlers):
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await asyncio.sleep(0)
