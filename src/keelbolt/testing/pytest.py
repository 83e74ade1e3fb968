"""Fixtures with real servers for your own tests. In your conftest.py:

pytest_plugins = ["keelbolt.testing.pytest"]

Servers start once per session, when a test first asks for one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from keelbolt.testing.postgres import PostgresServer, postgres_server
from keelbolt.testing.valkey import ValkeyServer, valkey_server


@pytest.fixture(scope="session")
def keelbolt_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL for the whole session."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(keelbolt_postgres: PostgresServer) -> Iterator[str]:
    """The URL of a new, empty database."""
    with keelbolt_postgres.database() as url:
        yield url


@pytest.fixture(scope="session")
def keelbolt_valkey() -> Iterator[ValkeyServer]:
    """A Valkey or Redis for the whole session."""
    with valkey_server() as server:
        yield server


@pytest.fixture
def redis_url(keelbolt_valkey: ValkeyServer) -> str:
    """The URL of an empty numbered database."""
    return keelbolt_valkey.create_database()
