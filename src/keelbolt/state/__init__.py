"""The state of agents: events, bindings, pauses, memory, tasks, updates, steering, trajectories and artifacts.

    store = StateStore("sqlite:///state.db")
    flow = create(a.to(b), state_store=store)

`StateStore` implements PenguiFlow's interface of the same name and also works without PenguiFlow.
"""

from __future__ import annotations

from keelbolt.state.adapters import HybridStateStore, StateStoreSessionAdapter
from keelbolt.state.artifacts import ArtifactStore, ScopedArtifacts, discover_artifact_store
from keelbolt.state.engine.connection import Counters
from keelbolt.state.events.traces import HistoryPage
from keelbolt.state.factory import create_session_store, create_store
from keelbolt.state.families import StateRetention
from keelbolt.state.planner_state import PauseLease, WaitingPause
from keelbolt.state.protocols import (
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
from keelbolt.state.retention import StateSwept
from keelbolt.state.store import StateStore
from keelbolt.state.store_context import StateHealth
from keelbolt.state.types import (
    ArtifactRef,
    ArtifactRetentionConfig,
    ArtifactScope,
    PlannerEvent,
    RemoteBinding,
    StateUpdate,
    SteeringEvent,
    SteeringEventType,
    StoredEvent,
    TaskContextSnapshot,
    TaskState,
    TaskStatus,
    TaskType,
    Trajectory,
    UpdateType,
)

__all__ = [
    "ArtifactRef",
    "ArtifactRetentionConfig",
    "ArtifactScope",
    "ArtifactStore",
    "Counters",
    "HistoryPage",
    "HybridStateStore",
    "PauseLease",
    "PlannerEvent",
    "RemoteBinding",
    "ScopedArtifacts",
    "StateHealth",
    "StateRetention",
    "StateStore",
    "StateStoreSessionAdapter",
    "StateSwept",
    "StateUpdate",
    "SteeringEvent",
    "SteeringEventType",
    "StoredEvent",
    "SupportsArtifacts",
    "SupportsConversationBindings",
    "SupportsEvents",
    "SupportsMemoryState",
    "SupportsPlannerEvents",
    "SupportsPlannerState",
    "SupportsSteering",
    "SupportsTasks",
    "SupportsTrajectories",
    "TaskContextSnapshot",
    "TaskState",
    "TaskStatus",
    "TaskType",
    "Trajectory",
    "UpdateType",
    "WaitingPause",
    "create_session_store",
    "create_store",
    "discover_artifact_store",
    "missing_capabilities",
    "require_capabilities",
]
