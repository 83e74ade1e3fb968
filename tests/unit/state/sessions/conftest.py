"""Sessions in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from keelbolt.state import StateStore
from keelbolt.state.sessions import StreamingSession


@pytest.fixture
async def store() -> AsyncIterator[StateStore]:
    """A store in memory that returns Keelbolt's own classes."""
    async with StateStore("memory:", types="own") as store:
        yield store


@pytest.fixture
async def session(store: StateStore) -> AsyncIterator[StreamingSession]:
    """A session of the store."""
    async with StreamingSession("s", state_store=store) as session:
        yield session
