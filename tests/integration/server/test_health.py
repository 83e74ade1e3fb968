"""/health and /ready: what they say, and how often they look."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keelbolt.server import health
from tests.integration.server.actor import agent
from tests.integration.server.asgi import ask


async def test_the_store_is_looked_at_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask: a look writes, and everybody may ask."""
    async with agent() as server:
        kernel = server.routes.service.engine.kernel
        look, looks = kernel.health, 0

        async def counted() -> Any:
            nonlocal looks
            looks += 1
            return await look()

        monkeypatch.setattr(kernel, "health", counted)
        for path in ("/health", "/ready"):
            replies = await asyncio.gather(*(ask(server.app, "GET", path) for _ in range(50)))
            assert {reply.status for reply in replies} == {200}
        assert looks == 1
        monkeypatch.setattr(health, "LOOK_SECONDS", 0.0)
        server.routes.health._known = None
        for _ in range(2):
            await ask(server.app, "GET", "/health")
        assert looks == 3


async def test_who_drains_says_so_at_once() -> None:
    async with agent() as server:
        assert (await ask(server.app, "GET", "/ready")).status == 200
        server.drain()
        assert (await ask(server.app, "GET", "/ready")).status == 503
