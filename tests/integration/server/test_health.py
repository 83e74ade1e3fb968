"""/live, /ready and /health: their content, and the frequency of storage checks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.actor import agent
from tests.integration.server.asgi import ask


async def test_the_store_is_checked_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests within a second share one check: a check writes, and every client may request it."""
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
        monkeypatch.setattr("keelbolt.server.health.LOOK_SECONDS", 0.0)
        server.routes.health._known = None
        for _ in range(2):
            await ask(server.app, "GET", "/health")
        assert looks == 3


async def test_a_draining_process_reports_it_at_once() -> None:
    async with agent() as server:
        assert (await ask(server.app, "GET", "/ready")).status == 200
        server.drain()
        assert (await ask(server.app, "GET", "/ready")).status == 503
        assert (await ask(server.app, "GET", "/live")).status == 200


async def test_live_never_checks_the_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that hangs or refuses makes the process unready, but it stays alive."""
    async with agent() as server:
        engine = server.routes.service.engine

        async def unwell() -> Any:
            return replace(await look(), reads=False, writes=False)

        class Refused:
            def __getattr__(self, name: str) -> Any:
                raise AssertionError(f"/live asked the storage: {name}")

        kernel = engine.kernel
        look = kernel.health
        monkeypatch.setattr(kernel, "health", unwell)
        for path, status in (("/live", 200), ("/ready", 503), ("/health", 503)):
            assert (await ask(server.app, "GET", path)).status == status
        with monkeypatch.context() as patched:
            patched.setattr(engine, "kernel", Refused())
            patched.setattr(server.routes.health, "_known", None)
            assert (await ask(server.app, "GET", "/live")).json["status"] == "ok"
            assert (await ask(server.app, "HEAD", "/live")).status == 200


def test_the_image_uses_the_liveness_check() -> None:
    """A failed check restarts a container, so it must not depend on the storage."""
    dockerfile = (Path(__file__).parents[3] / "Dockerfile").read_text()
    [check] = [line for line in dockerfile.splitlines() if "urlopen" in line]
    assert "/live'" in check
