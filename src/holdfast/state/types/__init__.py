"""The types of the StateStore specification, so that a store works alone. With penguiflow its own come back."""

from __future__ import annotations

from holdfast.state.types.actions import PlannerAction
from holdfast.state.types.artifacts import ArtifactRef, ArtifactRetentionConfig, ArtifactScope
from holdfast.state.types.events import FlowEvent, RemoteBinding, StoredEvent
from holdfast.state.types.planner import BackgroundTaskResult, PlannerEvent
from holdfast.state.types.steering import SteeringEvent, SteeringEventType
from holdfast.state.types.tasks import (
    StateUpdate,
    TaskContextSnapshot,
    TaskState,
    TaskStateModel,
    TaskStatus,
    TaskType,
    UpdateType,
)
from holdfast.state.types.trajectories import Trajectory, TrajectoryStep, TrajectorySummary

__all__ = [
    "ArtifactRef",
    "ArtifactRetentionConfig",
    "ArtifactScope",
    "BackgroundTaskResult",
    "FlowEvent",
    "PlannerAction",
    "PlannerEvent",
    "RemoteBinding",
    "StateUpdate",
    "SteeringEvent",
    "SteeringEventType",
    "StoredEvent",
    "TaskContextSnapshot",
    "TaskState",
    "TaskStateModel",
    "TaskStatus",
    "TaskType",
    "Trajectory",
    "TrajectoryStep",
    "TrajectorySummary",
    "UpdateType",
]
