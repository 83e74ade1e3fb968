"""Fixtures for your own tests: real servers, and a harness for workers. In your conftest.py:

pytest_plugins = ["keelbolt.testing.pytest"]

Servers start once per session, when a test first asks for one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from keelbolt.tasks.worker import AnyWorker
from keelbolt.testing.postgres import PostgresServer, postgres_server
from keelbolt.testing.valkey import ValkeyServer, valkey_server
from keelbolt.testing.worker import WorkerHarness


@pytest.fixture(scope="session")
def keelbolt_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the whole session."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(keelbolt_postgres: PostgresServer) -> Iterator[str]:
    """The URL of a new, empty database."""
    with keelbolt_postgres.database() as url:
        yield url


@pytest.fixture(scope="session")
def keelbolt_valkey() -> Iterator[ValkeyServer]:
    """A Valkey or Redis server for the whole session."""
    with valkey_server() as server:
        yield server


@pytest.fixture
def redis_url(keelbolt_valkey: ValkeyServer) -> str:
    """The URL of an empty numbered database."""
    return keelbolt_valkey.create_database()


@pytest.fixture
async def worker_harness() -> AsyncIterator[Callable[..., Awaitable[WorkerHarness]]]:
    """An awaitable function that starts a `WorkerHarness` for a worker; it is closed at the end of the test."""
    async with AsyncExitStack() as stack:

        async def start(worker: AnyWorker, **options: Any) -> WorkerHarness:
            return await stack.enter_async_context(WorkerHarness(worker, **options))

        yield start
