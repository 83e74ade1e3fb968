"""A pause taken with a lease, as a context manager."""

from __future__ import annotations

import asyncio

import pytest

from keelbolt.errors import StateConflict
from keelbolt.state import StateStore


async def test_a_block_longer_than_its_lease_raises() -> None:
    """The caller must get an error, because another caller may have taken the pause and repeated the work."""
    async with StateStore("memory:") as store:
        await store.save_planner_state("token", {"kept": True})
        lease = await store.take_planner_state("token", lease_seconds=0.1)
        assert lease is not None
        with pytest.raises(StateConflict, match="the lease expired before its block ended"):
            async with lease:
                await asyncio.sleep(0.3)
        assert await store.load_planner_state("token") == {"kept": True}


async def test_a_block_that_raises_releases_the_pause() -> None:
    async with StateStore("memory:") as store:
        await store.save_planner_state("token", {"kept": True})
        lease = await store.take_planner_state("token", lease_seconds=60)
        assert lease is not None
        with pytest.raises(RuntimeError):
            async with lease:
                raise RuntimeError
        again = await store.take_planner_state("token", lease_seconds=60)
        assert again is not None
        async with again:
            assert again.payload == {"kept": True}
        assert await store.get_pause("token") is None
