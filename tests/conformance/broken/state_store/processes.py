"""Faults that only several processes show."""

from __future__ import annotations

import asyncio
from typing import Any

from keelbolt.state import StateStore
from keelbolt.state.engine.writes import Saved
from tests.conformance.broken.state_store.fault import caught_by


@caught_by("awaited_saves_of_a_killed_process_are_stored")
class SavesEventsWhenItIsClosed(StateStore):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._gathered: list[Any] = []

    async def save_event(self, event: Any, planner_event: Any = None) -> None:  # type: ignore[override]
        if planner_event is not None:
            await super().save_event(event, planner_event)
        self._gathered.append(event)

    async def close(self) -> None:
        await self.save_events(self._gathered)
        await super().close()


@caught_by("two_processes_that_write_a_memory_lose_nothing")
class ComparesAndThenSaves(StateStore):
    async def save_memory_state(  # type: ignore[override]
        self, key: str, state: dict[str, Any], *, if_version: int | None = None
    ) -> Saved | None:
        if if_version not in (None, (await self.load_memory_version(key))[1]):
            raise ValueError(if_version)
        await asyncio.sleep(0.05)  # the other process saves meanwhile
        await super().save_memory_state(key, state)
        return None
