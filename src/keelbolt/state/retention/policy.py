"""Retention of state by age and number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from keelbolt.data.retention import FacePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRetention(FacePolicy):
    """Ages are seconds since the save, numbers are of the newest to keep; None means no limit.

    ``events`` and ``planner_events`` are counted for each trace, ``updates``, ``steering``, ``trajectories`` and
    ``artifacts`` for each session. Events that arrived together are removed together, so slightly more than the number
    may stay. ``tasks`` removes finished tasks, ``bindings`` all bindings, ``memory`` all states except the values that
    tools keep (``ctx.kv``), ``artifacts`` artifacts that were not used for this time. ``sessions`` removes whole
    sessions that were not used for this time plus two hours, with all their data except memory, whose keys belong to
    the callers.
    """

    face: ClassVar[str] = "state"

    events: float | None = None
    planner_events: float | None = None
    updates: float | None = None
    steering: float | None = None
    tasks: float | None = None
    trajectories: float | None = None
    bindings: float | None = None
    memory: float | None = None
    artifacts: float | None = None
    sessions: float | None = None
    max_events: int | None = None
    max_planner_events: int | None = None
    max_updates: int | None = None
    max_steering: int | None = None
    max_trajectories: int | None = None
    max_artifacts: int | None = None
