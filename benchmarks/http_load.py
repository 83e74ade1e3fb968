"""A minimal HTTP load generator on loopback, so that the client does not dominate the measurement."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests per second, their latencies, and their number."""

    per_second: float
    p50: float  # seconds
    p99: float
    count: int = 0


Bodies = Callable[[int, int], bytes]  # body by connection and number of the request


async def post_all(port: int, bodies: Bodies, *, connections: int, each: int) -> Rate:
    """Post ``each`` bodies over each connection, one after the other; every response must be 200."""
    return await _post(port, bodies, connections, lambda number: number < each)


async def post_for(port: int, bodies: Bodies, *, connections: int, seconds: float, expected: bytes) -> Rate:
    """Post over each connection for this time, one by one; every response must be 200 and contain ``expected``."""
    end = time.perf_counter() + seconds
    return await _post(port, bodies, connections, lambda number: number == 0 or time.perf_counter() < end, expected)


async def _post(
    port: int, bodies: Bodies, connections: int, more: Callable[[int], bool], expected: bytes = b""
) -> Rate:
    times: list[float] = []

    async def run(connection: int) -> None:
        async with asyncio.timeout(300):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                number = 0
                while more(number):
                    body = bodies(connection, number)
                    started = time.perf_counter()
                    writer.write(request("POST", "/", body))
                    answered = await answer(reader)
                    times.append(time.perf_counter() - started)
                    if expected not in answered:
                        raise RuntimeError(f"the server returned {answered[:200]!r}")
                    number += 1

    began = time.perf_counter()
    await asyncio.gather(*map(run, range(connections)))
    took = time.perf_counter() - began
    times.sort()
    return Rate(len(times) / took, times[len(times) // 2], times[int(len(times) * 0.99)], len(times))


async def get_all(port: int, path: str, *, connections: int, each: int) -> Rate:
    """Get a path repeatedly."""

    async def run(_: int) -> None:
        async with asyncio.timeout(300):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _number in range(each):
                writer.write(request("GET", path))
                await answer(reader)
            writer.close()

    began = time.perf_counter()
    await asyncio.gather(*map(run, range(connections)))
    return Rate(connections * each / (time.perf_counter() - began), 0.0, 0.0)


def request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\na2a-version: 1.0\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def answer(reader: asyncio.StreamReader) -> bytes:
    """Return the body of a response with a Content-Length."""
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head[:15]:
        raise RuntimeError(f"the server returned {head[:60]!r}")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return await reader.readexactly(int(line.split(b":")[1]))
    raise RuntimeError("the response has no Content-Length")


def message(text: str, message_id: str, method: str = "SendMessage") -> bytes:
    """Return a JSON-RPC call that sends a text."""
    request_message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": request_message}}).encode()
