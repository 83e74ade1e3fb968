"""Agents behind a real socket: in this process, so that the test can inspect them, or in their own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import httpx2
import uvicorn

from keelbolt.server import A2AServer


def free_socket() -> socket.socket:
    bound = socket.socket(proto=socket.IPPROTO_TCP)  # without IPPROTO_TCP, asyncio keeps Nagle
    bound.bind(("127.0.0.1", 0))
    return bound


@contextlib.asynccontextmanager
async def served(server: A2AServer) -> AsyncIterator[str]:
    """Serve an agent by uvicorn on loopback; return its address."""
    bound = free_socket()
    config = uvicorn.Config(server.app, lifespan="on", log_config=None, access_log=False, timeout_graceful_shutdown=5)
    host = uvicorn.Server(config)
    serving = asyncio.create_task(host._serve([bound]))
    while not host.started:
        await asyncio.sleep(0.005)
        assert not serving.done()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.drain()
        host.should_exit = True
        await serving
        bound.close()


@contextlib.asynccontextmanager
async def talking(server: A2AServer) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve an agent on loopback; yield a client of it."""
    async with served(server) as url, httpx2.AsyncClient(base_url=url, timeout=20) as client:
        yield client
