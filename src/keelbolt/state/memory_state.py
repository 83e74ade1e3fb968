"""States under keys: the memories of conversations, and the values that tools keep. They do not expire."""

from __future__ import annotations

from typing import Any

from keelbolt.errors import InvalidState
from keelbolt.state.codec import decode
from keelbolt.state.desk import Desk
from keelbolt.state.families import MEMORY
from keelbolt.state.names import name
from keelbolt.state.saving import Saved
from keelbolt.storage import Put, Scope


class MemoryStates:
    """``save_memory_state`` and ``load_memory_state``."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def save(self, key: str, state: dict[str, Any]) -> Saved:
        """Keep a deep copy of the state."""
        if not isinstance(state, dict):
            raise InvalidState(f"a memory state must be a dict, not a {type(state).__name__}")
        body = self._desk.encode({"key": key, "state": state})
        kept = Put(MEMORY, name(key), body, {"saved": self._desk.tick()})
        return self._desk.save("save_memory_state", (kept,), len(body))

    async def load(self, key: str) -> dict[str, Any] | None:
        """The state, or None."""

        async def read(scope: Scope) -> dict[str, Any] | None:
            record = await scope.get(MEMORY, name(key))
            if record is None:
                return None
            state: dict[str, Any] = decode(record.body)["state"]
            return state

        return await self._desk.load("load_memory_state", read, None)
