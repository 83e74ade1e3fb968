"""What may go, by age and by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from keelbolt.data.retention import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRetention(Policy):
    """Ages are in seconds since something was saved, numbers are of the newest that stay; None: all of it stays.

    ``events`` and ``planner_events`` are counted for each trace, ``updates``, ``steering``, ``trajectories`` and
    ``artifacts`` for each session. Events that came together go together, so that some more than the number may stay.
    Of ``tasks`` those go that are over, of ``bindings`` all, of ``memory`` all but the values that tools keep
    (``ctx.kv``), of ``artifacts`` those that were not used for so long. ``sessions`` removes whole sessions
    that were not in use for so long and two more hours, with everything that is theirs but memory, whose keys are the
    callers'.
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
