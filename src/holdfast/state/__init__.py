"""The state of agents: events, bindings, pauses, memory, tasks, updates, steering, trajectories and artifacts.

    store = StateStore("sqlite:///state.db")
    flow = create(a.to(b), state_store=store)

`StateStore` is what PenguiFlow calls one, and works without PenguiFlow too.
"""

from __future__ import annotations

from holdfast.state.protocols import (
    SupportsArtifacts,
    SupportsConversationBindings,
    SupportsEvents,
    SupportsMemoryState,
    SupportsPlannerEvents,
    SupportsPlannerState,
    SupportsSteering,
    SupportsTasks,
    SupportsTrajectories,
    missing_capabilities,
    require_capabilities,
)
from holdfast.state.store import StateStore

__all__ = [
    "StateStore",
    "SupportsArtifacts",
    "SupportsConversationBindings",
    "SupportsEvents",
    "SupportsMemoryState",
    "SupportsPlannerEvents",
    "SupportsPlannerState",
    "SupportsSteering",
    "SupportsTasks",
    "SupportsTrajectories",
    "missing_capabilities",
    "require_capabilities",
]
