"""LangGraph on Keelbolt's storage: a checkpointer and a store for SQLite, PostgreSQL, Redis/Valkey and memory.

    graph = builder.compile(checkpointer=KeelboltSaver("sqlite:///agent.db"), store=KeelboltStore("sqlite:///agent.db"))

Needs the extra ``langgraph``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keelbolt.lazy import Needs, lazy_names

if TYPE_CHECKING:
    from keelbolt.langgraph.saver import KeelboltSaver
    from keelbolt.langgraph.store import KeelboltStore
    from keelbolt.langgraph.worker import GraphContext, langgraph_worker

__all__ = ["GraphContext", "KeelboltSaver", "KeelboltStore", "langgraph_worker"]

_HOMES = {
    "GraphContext": "keelbolt.langgraph.worker",
    "KeelboltSaver": "keelbolt.langgraph.saver",
    "KeelboltStore": "keelbolt.langgraph.store",
    "langgraph_worker": "keelbolt.langgraph.worker",
}

__getattr__ = lazy_names(
    __name__, _HOMES, Needs("langgraph", "langgraph", "langgraph")
)  # ``families`` needs no LangGraph
