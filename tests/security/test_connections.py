"""Clients that open many connections, or do not read, cost a bounded amount and are logged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import socket

import pytest

from keelbolt.kernel import Entry, open_storage
from keelbolt.server.processes import RESERVED_FILES, ConnectionCounter, most_connections
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks.events import READ_BYTES, Feed, TaskFeeds
from keelbolt.tasks.stored_tasks import StoredTasks
from tests.integration.server.actor import agent
from tests.integration.server.loopback import served, talked

HELLO = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def answered(port: int) -> tuple[bytes, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HELLO)
    async with asyncio.timeout(20):
        return await reader.readline(), writer


async def test_more_connections_than_allowed_are_refused_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with served(agent(settings=ServerSettings.of({}, connections=5))) as port:
        found = [await answered(port) for _ in range(8)]
        lines = [line for line, _ in found]
        assert lines == [b"HTTP/1.1 200 OK\r\n"] * 5 + [b"HTTP/1.1 503 Service Unavailable\r\n"] * 3
        found[0][1].close()
        await found[0][1].wait_closed()
        async with asyncio.timeout(20):  # until the agent has noticed
            while (again := await answered(port))[0] != b"HTTP/1.1 200 OK\r\n":
                again[1].close()
        for _, writer in (*found, again):
            writer.close()
    (record,) = [record for record in caplog.records if "refused" in record.message]
    assert "the limit is 5 (connections)" in record.message


def test_the_connections_of_one_address_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    opened = ConnectionCounter(100, 2)
    assert [opened.enter("192.0.2.1") for _ in range(4)] == [True, True, False, False]
    assert opened.enter("192.0.2.2")
    opened.leave("192.0.2.1")
    assert opened.enter("192.0.2.1")
    assert all(opened.enter("127.0.0.1") for _ in range(10))  # a proxy may be there
    assert [record.message for record in caplog.records] == [
        "refused 1 connections, the last from 192.0.2.1: the limit is 2 per address (connections_each)"
    ]
    behind_proxy = ConnectionCounter(100, 2, trust_proxy=True)
    assert all(behind_proxy.enter("192.0.2.1") for _ in range(10))


def test_an_address_without_connections_is_removed() -> None:
    opened = ConnectionCounter(0, 2)
    for number in range(1000):
        assert opened.enter(f"192.0.2.{number}")
        opened.leave(f"192.0.2.{number}")
    assert not opened._open


def test_the_limit_of_open_files_is_raised_or_obeyed(caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
        wanted = min(2000, hard - RESERVED_FILES if hard != resource.RLIM_INFINITY else 2000)
        assert most_connections(wanted) == wanted
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= wanted + RESERVED_FILES
        if hard != resource.RLIM_INFINITY:
            assert most_connections(hard) == hard - RESERVED_FILES
            assert "ulimit -n" in caplog.text
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_response_that_is_not_read_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """A slow reader is served to the end; a client that reads nothing loses its connection."""
    caplog.set_level(logging.INFO, "keelbolt.server")
    text = "x" * 8_000_000
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": f"echo {text}"}]}
    body = json.dumps({"message": message}).encode()
    head = b"POST /message:send HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    request = head + b"content-length: %d\r\n\r\n" % len(body) + body

    async def connected() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        small.setblocking(False)
        await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=small, limit=4096)
        writer.write(request)
        await writer.drain()
        return reader, writer

    async with served(agent(settings=ServerSettings.of({}, write_seconds=1.0))) as port, asyncio.timeout(120):
        _, deaf_writer = await connected()
        slow, slow_writer = await connected()
        got = 0
        while data := await slow.read(2_000_000):
            got += len(data)
            if got >= 2 * len(text):  # the message and its echo
                break
            await asyncio.sleep(0.001)
        assert got >= 2 * len(text)
        while "read nothing" not in caplog.text:  # noqa: ASYNC110 - a line of the log sets no event
            await asyncio.sleep(0.05)
        assert caplog.text.count("read nothing") == 1
        for writer in (deaf_writer, slow_writer):
            writer.close()


@pytest.mark.parametrize("trailer", [b"x-name: " + b"x" * 1000 + b"\r\n", b"x" * 1024], ids=["many", "endless"])
@pytest.mark.parametrize("path", [b"/live", b"/message:send"])
async def test_trailers_are_limited(path: bytes, trailer: bytes) -> None:
    """A chunked body without an end does not fill the memory; also if the response was sent long before."""
    begin = b"POST %b HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" % path
    async with served(agent()) as port, asyncio.timeout(60):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begin)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 100_000_000:
                writer.write(trailer * 64)
                sent += 64 * len(trailer)
                await writer.drain()
        writer.close()
        assert sent < 100_000_000  # the connection was closed; the kernel buffers some megabytes


async def test_trailers_are_not_headers() -> None:
    """No proxy has checked a trailer; it can't add credentials or other headers to a request."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}).encode()
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    chunks = b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\na2a-version: 9.9\r\n\r\n" % (len(body), body)
    async with served(agent()) as port:
        assert b'"totalSize":0' in await talked(port, head + chunks)


@pytest.mark.parametrize("cut", [0, 60, -10, None])
async def test_an_upgrade_is_ignored(cut: int | None) -> None:
    """Java's HTTP client asks for HTTP/2 with each request; the request is served as HTTP/1.1, with its body."""
    body = json.dumps({"jsonrpc": "2.0", "id": "upgraded", "method": "ListTasks", "params": {}}).encode()
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    upgrade = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
    sized = b"content-length: %d\r\n\r\n%b" % (len(body), body)
    chunked = b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    last = head + b"connection: close\r\n" + sized
    request = head + upgrade + sized + head + upgrade + chunked + last
    async with served(agent()) as port:
        got = await talked(port, request[:cut], request[cut:] if cut is not None else b"", pause=0.1)
    assert got.count(b"HTTP/1.1 200 OK") == got.count(b'"id":"upgraded","result"') == 3


async def test_a_tunnel_is_refused() -> None:
    async with served(agent()) as port:
        for target in (b"example.com:443", b"/live"):
            got = await talked(port, b"CONNECT %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % target)
            assert got.startswith(b"HTTP/1.1 400 ")


async def test_a_slow_reader_of_a_stream_uses_little_memory() -> None:
    """A reader takes a bounded number of bytes, waits until its client has read them, and misses nothing."""
    async with open_storage("memory:") as kernel:
        _read_slowly(Feed(TaskFeeds(StoredTasks(kernel)), kernel.scoped("partition"), "task", 0))


def _read_slowly(feed: Feed) -> None:
    feed.publish([Entry(seq, "artifact", b"x" * 20_000, 0) for seq in range(1, 41)])
    seq, seen = 0, 0
    while entries := feed.after(seq):
        assert sum(len(entry.data) for entry in entries) <= READ_BYTES
        assert [entry.seq for entry in entries] == list(range(seq + 1, seq + 1 + len(entries)))
        seq, seen = entries[-1].seq, seen + len(entries)
    assert seen == 40
    feed.publish([Entry(41, "artifact", b"x" * 4 * READ_BYTES, 0), Entry(42, "artifact", b"x", 0)])
    large = feed.after(40)
    assert large is not None
    assert [entry.seq for entry in large] == [41]  # one entry is taken, regardless of its size
