"""Each test runs on four engines: memory, a SQLite file, a real PostgreSQL, a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from keelbolt.tasks import runner
from keelbolt.testing.postgres import PostgresServer
from keelbolt.testing.valkey import ValkeyServer
from tests.integration.tasks.stage import Stage

ENGINES = ["memory", "sqlite", "postgres", "redis"]


def store_url(engine: str, request: pytest.FixtureRequest, path: Path) -> str:
    """Return the URL of an empty store."""
    if engine == "postgres":
        server: PostgresServer = request.getfixturevalue("keelbolt_postgres")
        return f"{server.url}?schema=tasks_{uuid4().hex[:12]}"
    if engine == "redis":
        valkey: ValkeyServer = request.getfixturevalue("keelbolt_valkey")
        return valkey.create_database()
    return "memory:" if engine == "memory" else f"sqlite:///{path}/tasks.db"


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    return store_url(request.param, request, tmp_path)


@pytest.fixture
async def stage(url: str) -> AsyncIterator[Stage]:
    """A Stage on each kind of store, for any number of processes."""
    async with Stage(url) as stage:
        yield stage


@pytest.fixture
async def memory() -> AsyncIterator[Stage]:
    """A Stage in memory, for tests that do not depend on the storage."""
    async with Stage("memory:") as stage:
        yield stage


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll often: an expired lease sends no notification and is found by polling."""
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.03)
