"""An engine in memory, for what no store has a part in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.tasks.stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with Stage("memory:") as stage:
        yield stage
