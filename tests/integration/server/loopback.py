"""An agent behind a real connection, and a client that sends any bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from keelbolt.server import A2AServer
from keelbolt.server.processes import connections


@asynccontextmanager
async def served(server: A2AServer) -> AsyncIterator[int]:
    """Serve an agent at a port of this machine."""
    config = uvicorn.Config(server.app, http=connections(server.settings), ws="none", lifespan="on", log_config=None)
    listening = uvicorn.Server(config)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        serving = asyncio.create_task(listening.serve([bound]))
        try:
            async with asyncio.timeout(20):
                while not listening.started:  # noqa: ASYNC110 - uvicorn has no event for it
                    await asyncio.sleep(0.01)
            yield bound.getsockname()[1]
        finally:
            listening.should_exit = True
            await serving


async def talked(port: int, *pieces: bytes, pause: float = 0.0, patience: float = 10.0) -> bytes:
    """Return everything until the agent closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = bytearray()

    async def read() -> None:
        while data := await reader.read(65_536):
            got.extend(data)

    async def write() -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    reading, writing = asyncio.create_task(read()), asyncio.create_task(write())
    try:
        await asyncio.wait([reading], timeout=patience)
    finally:
        for task in (reading, writing):
            task.cancel()
        writer.close()
        await asyncio.gather(reading, writing, writer.wait_closed(), return_exceptions=True)
    return bytes(got)
