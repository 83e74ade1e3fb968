"""Each test runs on four engines: memory, a SQLite file, a real PostgreSQL, a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keelbolt.kernel import Kernel, open_storage
from tests.integration.tasks.conftest import ENGINES, store_url


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    return store_url(request.param, request, tmp_path)


@pytest.fixture
async def kernel(url: str) -> AsyncIterator[Kernel]:
    async with open_storage(url) as kernel:
        yield kernel
