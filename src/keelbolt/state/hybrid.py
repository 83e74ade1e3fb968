"""Combines two stores: a fast one for short-lived, often-read data, and a durable one for the rest."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from keelbolt.state.protocols import missing_capabilities

FAST = ("save_planner_state", "load_planner_state", "save_memory_state", "load_memory_state")
FAST_TOO = (
    "load_memory_version",
    "take_planner_state",
    "list_pauses",
    "get_pause",
    "cancel_pause",
)  # if the fast store has it
DURABLE = (
    *(
        "save_event",
        "save_events",
        "save_events_bulk",
        "load_history",
        "iter_history",
        "load_history_page",
        "save_remote_binding",
    ),
    *("find_binding", "list_bindings", "mark_binding_terminal"),
    *("save_task", "list_tasks", "save_update", "list_updates", "save_task_update", "list_task_updates"),
    *("save_steering", "list_steering", "save_trajectory", "get_trajectory", "list_traces"),
    *("save_planner_event", "list_planner_events", "get_events"),
)


class HybridStateStore:
    """Keeps pauses and memory in ``fast``, everything else in ``durable``.

    Any two stores can be combined. A method that the durable store lacks is missing here too.

        store = HybridStateStore(StateStore("postgresql://…"), fast=StateStore("redis://…"))
    """

    def __init__(self, durable: Any, *, fast: Any) -> None:
        missing = missing_capabilities(fast, FAST)
        if missing:
            raise TypeError(f"the fast store must store pauses and memory; these methods are missing: {missing}")
        self.durable = durable
        self.fast = fast
        for name in DURABLE:
            if hasattr(durable, name):
                setattr(self, name, getattr(durable, name))
        for name in (*FAST, *(name for name in FAST_TOO if hasattr(fast, name))):
            setattr(self, name, getattr(fast, name))

    @property
    def artifact_store(self) -> Any | None:
        """The artifact store of the durable store."""
        return getattr(self.durable, "artifact_store", None)

    async def flush(self) -> None:
        """Return when all earlier saves are committed in both stores, also if one of them lost a save."""
        try:
            if hasattr(self.fast, "flush"):
                await self.fast.flush()
        finally:
            if hasattr(self.durable, "flush"):
                await self.durable.flush()

    async def close(self) -> None:
        """Close both stores, the second also if closing the first fails."""
        try:
            if hasattr(self.fast, "close"):
                await self.fast.close()
        finally:
            if hasattr(self.durable, "close"):
                await self.durable.close()

    async def health(self) -> dict[str, Any]:
        """Return the health of each store that reports it."""
        return {
            name: await store.health() if hasattr(store, "health") else None
            for name, store in (("durable", self.durable), ("fast", self.fast))
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
