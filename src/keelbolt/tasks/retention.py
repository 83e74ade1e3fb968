"""How long finished tasks are kept, by state: what is older is erased. Nothing is erased unless it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from keelbolt.data.retention import Policy
from keelbolt.errors import InvalidValue
from keelbolt.protocol.types import TaskState

STATES = ("completed", "failed", "canceled", "rejected", "input_required", "auth_required")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy(Policy):
    """How long a task stays after its status changed for the last time, in seconds; None: for ever.

    RetentionPolicy(completed=days(30), failed=days(90), log=hours(1))

    Tasks that are submitted or working are never erased; those that wait for their user are, if an age is given.
    ``log`` is how long the entries of a finished task can be read one by one: afterwards its snapshot alone is left,
    and a reader that comes too late gets the snapshot with a gap. A context's own value goes with the last of its
    tasks.
    """

    face: ClassVar[str] = "tasks"

    completed: float | None = None
    failed: float | None = None
    canceled: float | None = None
    rejected: float | None = None
    input_required: float | None = None
    auth_required: float | None = None
    log: float | None = None
    every: float = 600.0  # a process that keeps this policy sweeps so often

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        if not self.every > 0:
            raise InvalidValue("every is more than 0 seconds")

    def ages(self) -> Iterator[tuple[TaskState, float]]:
        """The states whose tasks are erased, and after how many seconds."""
        for name in STATES:
            age: float | None = getattr(self, name)
            if age is not None:
                yield TaskState[name], age
