"""LangGraph on Keelbolt's storage: a checkpointer and a store for SQLite, PostgreSQL, Redis/Valkey and memory.

    graph = builder.compile(checkpointer=KeelboltSaver("sqlite:///agent.db"), store=KeelboltStore("sqlite:///agent.db"))

Needs the extra ``langgraph``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from keelbolt.errors import MissingExtra

if TYPE_CHECKING:
    from keelbolt.langgraph.saver import KeelboltSaver
    from keelbolt.langgraph.store import KeelboltStore
    from keelbolt.langgraph.worker import GraphContext, langgraph_worker

__all__ = ["GraphContext", "KeelboltSaver", "KeelboltStore", "langgraph_worker"]

_NAMES = {"KeelboltSaver": "saver", "KeelboltStore": "store", "GraphContext": "worker", "langgraph_worker": "worker"}


def __getattr__(name: str) -> Any:
    """Import a name on first use. The declarations in ``families`` need no LangGraph."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("langgraph") is None:
        raise MissingExtra("langgraph", "langgraph")
    return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
