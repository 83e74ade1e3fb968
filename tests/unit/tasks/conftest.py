"""An in-memory engine, for tests that do not depend on the storage."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.tasks.stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with Stage("memory:") as stage:
        yield stage
