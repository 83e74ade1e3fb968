"""Fixtures with real servers for your own tests. In your conftest.py:

pytest_plugins = ["holdfast.testing.pytest"]

Servers start once per session, when a test first asks for one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.postgres import PostgresServer, postgres_server
from holdfast.testing.valkey import ValkeyServer, valkey_server


@pytest.fixture(scope="session")
def holdfast_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL for the whole session."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(holdfast_postgres: PostgresServer) -> Iterator[str]:
    """The URL of a new, empty database."""
    with holdfast_postgres.database() as url:
        yield url


@pytest.fixture(scope="session")
def holdfast_valkey() -> Iterator[ValkeyServer]:
    """A Valkey or Redis for the whole session."""
    with valkey_server() as server:
        yield server


@pytest.fixture
def redis_url(holdfast_valkey: ValkeyServer) -> str:
    """The URL of an empty numbered database."""
    return holdfast_valkey.create_database()
