"""Replies of a Redis server are parsed wherever the bytes are split."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import InvalidResponse, NoPermissionError, ResponseError

from keelbolt.kernel.redis.replies import ReplyParser

REPLIES: dict[bytes, Any] = {
    b"+OK\r\n": b"OK",
    b":0\r\n": 0,
    b":-12345678901234567\r\n": -12345678901234567,
    b"$-1\r\n": None,
    b"$0\r\n\r\n": b"",
    b"$6\r\na\r\n\0\xff*\r\n": b"a\r\n\0\xff*",
    b"*-1\r\n": None,
    b"*0\r\n": [],
    b"*2\r\n*3\r\n:1\r\n$2\r\nab\r\n*1\r\n:7\r\n*0\r\n": [[1, b"ab", [7]], []],
}


def parser_of(stream: asyncio.StreamReader) -> ReplyParser:
    parser = ReplyParser(65536)
    parser._stream, parser._connected = stream, True
    return parser


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_replies_in_pieces(size: int) -> None:
    """The same replies are parsed in order at any split of the bytes."""
    raw = b"".join(REPLIES) * 3
    stream = asyncio.StreamReader()
    parser = parser_of(stream)

    async def feed() -> None:
        for at in range(0, len(raw), size):
            stream.feed_data(raw[at : at + size])
            await asyncio.sleep(0)
        stream.feed_eof()

    feeding = asyncio.create_task(feed())
    assert [await parser.read_response() for _ in range(3 * len(REPLIES))] == list(REPLIES.values()) * 3
    await feeding
    with pytest.raises(LostConnection):
        await parser.read_response()


async def test_a_large_reply() -> None:
    """Values of megabytes in an array arrive in pieces of a socket's size."""
    values = [random.randbytes(3_000_000), b"", random.randbytes(70_000)]
    raw = b"*3\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(value), value) for value in values) + b":5\r\n"
    stream = asyncio.StreamReader()
    parser = parser_of(stream)

    async def feed() -> None:
        for at in range(0, len(raw), 65536):
            stream.feed_data(raw[at : at + 65536])
            await asyncio.sleep(0)

    feeding = asyncio.create_task(feed())
    assert await parser.read_response() == values
    assert await parser.read_response() == 5
    await feeding


async def test_errors() -> None:
    """An error reply is returned as a value; invalid bytes and a closed connection raise."""
    stream = asyncio.StreamReader()
    parser = parser_of(stream)
    stream.feed_data(b"-ERR no\r\n*2\r\n-NOPERM not you\r\n:1\r\n-LOADING wait\r\n!x\r\n")
    error = await parser.read_response()
    assert isinstance(error, ResponseError)
    assert str(error) == "no"
    refused, number = await parser.read_response()
    assert isinstance(refused, NoPermissionError)
    assert number == 1
    with pytest.raises(LostConnection):
        await parser.read_response()
    with pytest.raises(InvalidResponse):
        await parser.read_response()
    parser.on_disconnect()  # type: ignore[no-untyped-call]
    with pytest.raises(LostConnection):
        await parser.read_response()
