"""Each test runs on four engines: memory, a SQLite file, a real PostgreSQL, a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keelbolt.turns.durable import DurableStorage, durable_storage
from tests.integration.tasks.conftest import ENGINES, store_url
from tests.integration.turns.stage import Calls, Turn


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    return store_url(request.param, request, tmp_path)


@pytest.fixture(params=[engine for engine in ENGINES if engine != "memory"])
def lasting_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each persistent kind."""
    return store_url(request.param, request, tmp_path)


@pytest.fixture
async def storage(url: str) -> AsyncIterator[DurableStorage]:
    async with durable_storage(url) as storage:
        yield storage


@pytest.fixture
def calls(storage: DurableStorage) -> Calls:
    """The callbacks of the storage, for one turn."""
    return Calls(storage.callbacks(), Turn())
