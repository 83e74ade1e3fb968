"""Stored data of a flow: its events, and its bindings to remote tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class StoredEvent:
    """A stored event. ``kind`` is an open set; ``trace_id`` is None for events without a trace."""

    trace_id: str | None
    ts: float
    kind: str
    node_name: str | None
    node_id: str | None
    payload: Mapping[str, Any]


@dataclass(slots=True)
class RemoteBinding:
    """A binding of a trace to a remote task; one for each (trace, context or None, task).

    The last seven fields belong to conversations: which session called which skill of the agent, and whether the next
    turn may go to the same remote task (``is_terminal``: no).
    """

    trace_id: str
    context_id: str | None
    task_id: str
    agent_url: str
    router_session_id: str | None = None
    remote_skill: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    last_remote_task_id: str | None = None
    is_terminal: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
