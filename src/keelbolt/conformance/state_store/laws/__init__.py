"""Every law of the StateStore, by the capability it is about."""

from __future__ import annotations

from keelbolt.conformance.state_store.laws import (
    artifacts,
    bindings,
    events,
    memory,
    pauses,
    planner_events,
    processes,
    reopened,
    steering,
    tasks,
    trajectories,
    updates,
)

__all__ = [
    "artifacts",
    "bindings",
    "events",
    "memory",
    "pauses",
    "planner_events",
    "processes",
    "reopened",
    "steering",
    "tasks",
    "trajectories",
    "updates",
]
