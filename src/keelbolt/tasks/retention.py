"""How long finished tasks are kept, by state; older ones are erased. By default nothing is erased."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from keelbolt.data.retention import FacePolicy
from keelbolt.errors import InvalidValue
from keelbolt.protocol.types import TaskState

STATES = ("completed", "failed", "canceled", "rejected", "input_required", "auth_required")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy(FacePolicy):
    """How long a task is kept after the last change of its status, in seconds; None: forever.

    RetentionPolicy(completed=days(30), failed=days(90), log=hours(1))

    Tasks that are submitted or working are never erased; paused tasks are erased if an age is given. ``log`` is the
    time for which the log entries of a finished task are kept: afterwards only its snapshot is left, and a late reader
    gets the snapshot with a gap. The value of a context is erased with the last of its tasks.
    """

    face: ClassVar[str] = "tasks"

    completed: float | None = None
    failed: float | None = None
    canceled: float | None = None
    rejected: float | None = None
    input_required: float | None = None
    auth_required: float | None = None
    log: float | None = None
    every: float = 600.0  # interval of the sweep in a process with this policy

    def __post_init__(self) -> None:
        FacePolicy.__post_init__(self)
        if not self.every > 0:
            raise InvalidValue("every must be more than 0 seconds")

    def ages(self) -> Iterator[tuple[TaskState, float]]:
        """Yield the states whose tasks are erased, and the age in seconds."""
        for name in STATES:
            age: float | None = getattr(self, name)
            if age is not None:
                yield TaskState[name], age
