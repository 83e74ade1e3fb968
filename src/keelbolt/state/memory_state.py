"""States under keys: memories of conversations and values of tools. They do not expire."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from keelbolt.errors import InvalidState, StateNotLoaded, StateNotSaved
from keelbolt.kernel import Insert, Operation, Put, Replace, Scope
from keelbolt.state.codec import decode
from keelbolt.state.engine.saving import Saved
from keelbolt.state.families import MEMORY
from keelbolt.state.names import name
from keelbolt.state.store_context import StoreContext

UNSURE = 10_000  # maximum number of remembered keys whose last load failed


class MemoryStates:
    """``save_memory_state``, ``load_memory_state`` and ``load_memory_version``."""

    def __init__(self, desk: StoreContext) -> None:
        self._desk = desk
        self._unsure: OrderedDict[str, StateNotLoaded] = OrderedDict()

    def save(self, key: str, state: dict[str, Any], if_version: int | None = None) -> Saved:
        """Save a deep copy of the state. With ``if_version``, only over this version; otherwise raise StateConflict.

        Without a version the state is replaced, unless the last load of this key failed: the caller would overwrite a
        state that it could not read.
        """
        if not isinstance(state, dict):
            raise InvalidState(f"a memory state must be a dict, not {type(state).__name__}")
        body = self._desk.encode({"key": key, "state": state})
        fields = {"saved": self._desk.tick()}
        kept: Operation
        if if_version is None:
            if (failure := self._unsure.get(key)) is not None:
                raise StateNotSaved("save_memory_state", failure) from failure
            kept = Put(MEMORY, name(key), body, fields)
        elif isinstance(if_version, bool) or not isinstance(if_version, int) or if_version < 0:
            raise InvalidState(f"if_version must be a version that load_memory_version returned, not {if_version!r}")
        elif if_version == 0:
            kept = Insert(MEMORY, name(key), body, fields)
        else:
            kept = Replace(MEMORY, name(key), if_version, body, fields)
        lives, vital = (self._desk.memory(key),), if_version is not None
        return self._desk.save("save_memory_state", (kept,), len(body), key=key, vital=vital, lives=lives)

    async def load(self, key: str) -> tuple[dict[str, Any] | None, int]:
        """Return the state and its version; None and 0 if there is none."""

        async def read(scope: Scope) -> tuple[dict[str, Any] | None, int]:
            record, _ = await asyncio.gather(scope.get(MEMORY, name(key)), self._desk.memory(key).begin(scope))
            return (None, 0) if record is None else (decode(record.body)["state"], record.version)

        try:
            found = await self._desk.load("load_memory_state", read, key=key)
        except StateNotLoaded as error:
            self._unsure[key] = error
            if len(self._unsure) > UNSURE:
                self._unsure.popitem(last=False)
            raise
        self._unsure.pop(key, None)
        return found
