"""A network that fails on command: a TCP proxy to put between a client and its server.

    async with Proxy("127.0.0.1", server.port) as proxy:
        url = proxy.url(server.url)
        proxy.cut_after(100, "down")    # the server's next 100 bytes still arrive, then the connection breaks

"up" is from the client to the server, "down" the way back.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

Direction = Literal["up", "down"]

_BLOCK = 64 * 1024
_RESET = struct.pack("ii", 1, 0)  # linger for 0 seconds: closing sends a reset


class Proxy:
    """Forwards bytes until a fault is set. ``passed`` counts them."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._silent: set[Direction] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._refusing = False
        self._delay: dict[Direction, float] = {"up": 0.0, "down": 0.0}
        self._left: dict[Direction, int | None] = {"up": None, "down": None}
        self.passed: dict[Direction, int] = {"up": 0, "down": 0}
        self.connections = 0
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._refusing = True
        self._server.close()
        tasks = [link.task for link in self._links]
        self.cut()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def url(self, url: str) -> str:
        """Return the URL with this proxy as its host."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{self.port}"))

    # ----------------------------------------------------------------------------------------------------- faults

    def cut(self) -> None:
        """Break every connection, with a reset."""
        for link in tuple(self._links):
            link.reset()

    def refuse(self) -> None:
        """Break every connection and take no new ones, until `allow`."""
        self._refusing = True
        self.cut()

    def allow(self) -> None:
        """Forward everything again, immediately; swallowed bytes are lost."""
        self._refusing = False
        self._silent.clear()
        self._delay = {"up": 0.0, "down": 0.0}
        self._left = {"up": None, "down": None}
        self._open.set()

    def cut_after(self, count: int, direction: Direction) -> None:
        """Forward this many more bytes in this direction, then break the connection that carried them."""
        self._left[direction] = count

    def delay(self, seconds: float, *directions: Direction) -> None:
        """Delay every block by this time; in both directions if none is given."""
        for direction in directions or ("up", "down"):
            self._delay[direction] = seconds

    def swallow(self, *directions: Direction) -> None:
        """Simulate half-open connections: they stay open, but bytes in this direction (or both) are dropped."""
        self._silent.update(directions or ("up", "down"))

    def hold(self) -> None:
        """Stop forwarding without loss; held bytes are forwarded after `allow`."""
        self._open.clear()

    # ------------------------------------------------------------------------------------------------- forwarding

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        link = _Link(task, writer)
        if self._refusing:
            link.reset()
            return
        self._links.add(link)
        self.connections += 1
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
            link.server = server_writer
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, server_writer, "up", link))
                both.create_task(self._pass(server_reader, writer, "down", link))
        except* OSError:
            link.reset()
        except* asyncio.CancelledError:
            link.reset()
        finally:
            self._links.discard(link)
            link.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction, link: _Link
    ) -> None:
        while block := await reader.read(_BLOCK):
            if self._delay[direction]:
                await asyncio.sleep(self._delay[direction])
            await self._open.wait()
            if direction in self._silent:
                continue
            left = self._left[direction]
            if left is not None:
                block = block[:left]
                self._left[direction] = left - len(block)
            writer.write(block)
            self.passed[direction] += len(block)
            if left is not None and left <= len(block):
                self._left[direction] = None
                with contextlib.suppress(OSError):
                    await writer.drain()
                # The forwarded bytes must arrive before the reset.
                await asyncio.sleep(0.02)
                link.reset()
                return
            await writer.drain()
        with contextlib.suppress(OSError):
            if writer.can_write_eof():
                writer.write_eof()


class _Link:
    """A client's connection and its connection to the server."""

    def __init__(self, task: asyncio.Task[None], client: asyncio.StreamWriter) -> None:
        self.task = task
        self.client = client
        self.server: asyncio.StreamWriter | None = None

    def reset(self) -> None:
        for writer in (self.client, self.server):
            if writer is None:
                continue
            connection = writer.get_extra_info("socket")
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    def close(self) -> None:
        for writer in (self.client, self.server):
            if writer is not None:
                writer.close()
