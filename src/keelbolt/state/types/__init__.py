"""The types of the StateStore specification, for use without penguiflow. With penguiflow, stores return its types."""

from __future__ import annotations

from keelbolt.state.types.events import ArtifactRef, ArtifactRetentionConfig, ArtifactScope, RemoteBinding, StoredEvent
from keelbolt.state.types.planner import BackgroundTaskResult, PlannerEvent
from keelbolt.state.types.tasks import (
    StateUpdate,
    SteeringEvent,
    SteeringEventType,
    TaskContextSnapshot,
    TaskState,
    TaskStatus,
    TaskType,
    UpdateType,
)
from keelbolt.state.types.trajectories import PlannerAction, Trajectory, TrajectoryStep, TrajectorySummary

__all__ = [
    "ArtifactRef",
    "ArtifactRetentionConfig",
    "ArtifactScope",
    "BackgroundTaskResult",
    "PlannerAction",
    "PlannerEvent",
    "RemoteBinding",
    "StateUpdate",
    "SteeringEvent",
    "SteeringEventType",
    "StoredEvent",
    "TaskContextSnapshot",
    "TaskState",
    "TaskStatus",
    "TaskType",
    "Trajectory",
    "TrajectoryStep",
    "TrajectorySummary",
    "UpdateType",
]
