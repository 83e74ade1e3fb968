"""A minimal gRPC load generator on loopback. It writes HTTP/2 frames directly, because a full client costs as much
as the measured server.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Callable

from benchmarks.http_load import Rate

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM = _ACK = 1
_END_HEADERS = 4
_WIDE = 2**31 - 1  # window size, large enough that the server never waits


async def call_all(
    port: int, path: str, messages: Callable[[int, int], bytes], *, connections: int, each: int, expected: bytes
) -> Rate:
    """Make ``each`` calls over each connection, one after the other; every response must contain the expected bytes."""
    times: list[float] = []
    head = _head(path)

    async def run(connection: int) -> None:
        async with asyncio.timeout(300):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                writer.write(_PREFACE)
                for number in range(each):
                    body = _wrapped(messages(connection, number))
                    stream = 2 * number + 1
                    started = time.perf_counter()
                    writer.write(
                        _frame(_HEADERS, _END_HEADERS, stream, head) + _frame(_DATA, _END_STREAM, stream, body)
                    )
                    answer = await _answer(reader, writer)
                    times.append(time.perf_counter() - started)
                    if expected not in answer:
                        raise RuntimeError(f"the server returned {answer[:60]!r}")

    began = time.perf_counter()
    await asyncio.gather(*map(run, range(connections)))
    took = time.perf_counter() - began
    times.sort()
    return Rate(len(times) / took, times[len(times) // 2], times[int(len(times) * 0.99)])


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return the data of one response, up to its trailers. Calls run one at a time, so only pings follow."""
    found, rest = b"", b""
    while True:
        arrived = await reader.read(65_536)
        if not arrived:
            raise RuntimeError("the server closed the connection")
        rest += arrived
        over = False
        while len(rest) >= 9 and len(rest) >= (end := 9 + int.from_bytes(rest[:3], "big")):
            kind, flags, body, rest = rest[3], rest[4], rest[9:end], rest[end:]
            if kind == _DATA:
                found += body
            elif kind == _HEADERS:
                over = over or bool(flags & _END_STREAM)
            elif kind in {_SETTINGS, _PING} and not flags & _ACK:
                writer.write(_frame(kind, _ACK, 0, body if kind == _PING else b""))
            elif kind in {_GOAWAY, _RESET}:
                raise RuntimeError(f"the server aborted the call: {body[:60]!r}")
        if over and not rest:
            return found


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def _wrapped(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def _head(path: str) -> bytes:
    """Return the headers of a call: POST and http by their indexes in the HPACK table, the others as literals."""
    fields = (
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("a2a-version", "1.0"),
    )
    return b"\x83\x86" + b"".join(_literal(name) + _text(value) for name, value in fields)


def _literal(name: str) -> bytes:
    return b"\0" + _text(name)


def _text(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


_PREFACE = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + _frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, _WIDE))
    + _frame(_WINDOW, 0, 0, struct.pack(">I", _WIDE - 65_535))
)
