"""Many items are handled in groups, which are smaller while they take long."""

from __future__ import annotations

import asyncio

import pytest

from keelbolt.data.groups import FIRST, GROUP_SECONDS, MOST, Groups


class Timed:
    """Handles items that each take this long, and notes how many are handled at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.seconds = seconds
        self.sizes: list[int] = []
        self._now = 0.0
        self._running = 0
        monkeypatch.setattr("keelbolt.data.groups.time.perf_counter", lambda: self._now)

    async def handle(self, item: int) -> int:
        if self._running == 0:
            self.sizes.append(0)
        self._running += 1
        self.sizes[-1] += 1
        self._now += self.seconds
        await asyncio.sleep(0)
        self._running -= 1
        return -item


async def test_groups_of_small_items_grow_and_those_of_large_items_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    timed, several = Timed(monkeypatch, GROUP_SECONDS / 1000), Groups()
    assert await several.each(timed.handle, range(200)) == [-item for item in range(200)]
    assert timed.sizes == [FIRST, 8, 16, 32, MOST, MOST, 200 - 188]
    timed.sizes, timed.seconds = [], GROUP_SECONDS * 1.1
    await several.each(timed.handle, range(130))
    assert timed.sizes == [64, 32, 16, 8, 4, 2, 1, 1, 1, 1]


async def test_an_error_is_raised_after_its_group_has_ended() -> None:
    ended = []

    async def handle(item: int) -> None:
        if item == 1:
            raise ValueError
        await asyncio.sleep(0.01)
        ended.append(item)

    with pytest.raises(ValueError):
        await Groups().each(handle, range(3 * FIRST))
    assert ended == [0, *range(2, FIRST)]
