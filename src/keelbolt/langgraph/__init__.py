"""LangGraph on our storage: a checkpointer and a store for SQLite, PostgreSQL, Redis/Valkey and memory.

    graph = builder.compile(checkpointer=KeelboltSaver("sqlite:///agent.db"), store=KeelboltStore("sqlite:///agent.db"))

Needs the extra ``langgraph``.
"""

from __future__ import annotations

from importlib.util import find_spec

from keelbolt.errors import MissingExtra

if find_spec("langgraph") is None:
    raise MissingExtra("langgraph", "langgraph")

from keelbolt.langgraph.saver import KeelboltSaver
from keelbolt.langgraph.store import KeelboltStore
from keelbolt.langgraph.worker import GraphContext, langgraph_worker

__all__ = ["GraphContext", "KeelboltSaver", "KeelboltStore", "langgraph_worker"]
