"""Each test runs on four engines: memory, a SQLite file, a real PostgreSQL, a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from keelbolt.state import StateStore
from keelbolt.testing.postgres import PostgresServer
from keelbolt.testing.valkey import ValkeyServer

ENGINES = ["memory", "sqlite", "postgres", "redis"]


def store_url(engine: str, request: pytest.FixtureRequest, path: Path) -> str:
    """Return the URL of an empty store."""
    if engine == "postgres":
        server: PostgresServer = request.getfixturevalue("keelbolt_postgres")
        return f"{server.url}?schema=state_{uuid4().hex[:12]}"
    if engine == "redis":
        valkey: ValkeyServer = request.getfixturevalue("keelbolt_valkey")
        return valkey.create_database()
    return "memory:" if engine == "memory" else f"sqlite:///{path}/state.db"


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    return store_url(request.param, request, tmp_path)


@pytest.fixture(params=ENGINES[1:])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind that several processes can open."""
    return store_url(request.param, request, tmp_path)


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """An empty SQLite file, for tests that do not depend on the engine."""
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
async def store(url: str) -> AsyncIterator[StateStore]:
    """A store on each engine that returns Keelbolt's own classes."""
    async with StateStore(url, types="own") as store:
        yield store
