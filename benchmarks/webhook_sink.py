"""Minimal receivers of webhooks in their own process, so that their cost is not measured.

    python -m benchmarks.webhook_sink COUNT

It prints the ports of COUNT receivers and of one that accepts every request and never responds. For each line that it
reads it prints the requests since the last line: the id and the time of each request, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"

arrived: list[tuple[str, float]] = []


class Sink(asyncio.Protocol):
    """Records each request, and responds."""

    def __init__(self, response: bytes) -> None:
        self._response = response
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            length = int(_value(head, b"content-length"))
            if len(self._buffer) < end + 4 + length:
                return
            self._buffer = self._buffer[end + 4 + length :]
            if self._response:
                arrived.append((_value(head, b"webhook-id").decode(), now))
                assert self._transport is not None
                self._transport.write(self._response)


def _value(head: bytes, name: bytes) -> bytes:
    return head.partition(name + b": ")[2].partition(b"\r\n")[0]


async def main(count: int) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(lambda: Sink(OK), "127.0.0.1", 0) for _ in range(count)]
    servers.append(await loop.create_server(lambda: Sink(b""), "127.0.0.1", 0))
    _say([server.sockets[0].getsockname()[1] for server in servers])
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        _say(arrived)
        arrived.clear()


def _say(value: object) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
