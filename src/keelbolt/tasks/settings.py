"""The settings of the task engine: arguments first, then ``KEELBOLT_*`` in the environment, then these defaults."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, get_args

from keelbolt.data.retention import FacePolicy
from keelbolt.environment import check_names
from keelbolt.errors import InvalidValue
from keelbolt.protocol.types import TaskState

DoubleText = Literal["enqueue", "reject", "interrupt"]
RepeatedSend = Literal["auto", "same", "new"]

_WORDS = {"double_text": get_args(DoubleText), "repeated_send": get_args(RepeatedSend)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """How tasks are run. Every field can be given as ``KEELBOLT_<FIELD>`` in the environment."""

    concurrency: int = 100  # maximum number of tasks that run at once in this process
    lease_seconds: float = 15.0  # after this time without a heartbeat, other processes take over
    heartbeat_seconds: float = 5.0
    max_attempts: int = 5  # a task whose process died this many times is failed and dead-lettered
    cancel_seconds: float = 2.0  # this long after a cancel the task is canceled, even if its worker continues
    no_progress_seconds: float = 1800.0  # a worker that has written nothing for this long is stopped
    drain_seconds: float = 10.0  # at shutdown, running tasks get this long before they are released
    sleep_hold_seconds: float = 1.0  # a ctx.sleep longer than this frees its slot
    double_text: DoubleText = "enqueue"  # for messages to a running task: wait for the turn's end, refuse, or interrupt
    repeated_send: RepeatedSend = "auto"  # which sends are repeats: see docs/reference/protocol.md

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if words := _WORDS.get(field.name):
                if value not in words:
                    raise InvalidValue(f"{field.name} must be one of {', '.join(words)}, not {value!r}")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise InvalidValue(f"{field.name} must be a non-negative number, not {value!r}")
        for count in (self.concurrency, self.max_attempts):
            if not isinstance(count, int) or count < 1:
                raise InvalidValue("concurrency and max_attempts must be integers of at least 1")
        if not 0 < self.heartbeat_seconds <= self.lease_seconds / 2:
            raise InvalidValue("heartbeat_seconds must be more than 0 and at most half of lease_seconds")

    @classmethod
    def of(cls, environment: Mapping[str, str] | None = None, **given: Any) -> Self:
        """Return the settings from arguments (None: not given) and the environment."""
        environment = os.environ if environment is None else environment
        check_names(environment)
        chosen: dict[str, Any] = {}
        for field in fields(cls):
            name = f"KEELBOLT_{field.name.upper()}"
            if given.get(field.name) is not None:
                chosen[field.name] = given[field.name]
            elif name in environment:
                chosen[field.name] = _read(name, environment[name], type(field.default))
        if unknown := set(given) - {field.name for field in fields(cls)}:
            raise InvalidValue(f"there is no setting {', '.join(sorted(unknown))}")
        if "lease_seconds" in chosen and "heartbeat_seconds" not in chosen:
            chosen["heartbeat_seconds"] = chosen["lease_seconds"] / 3
        return cls(**chosen)


def _read(name: str, text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise InvalidValue(f"{name} must be a number, not {text!r}") from None


# ------------------------------------------------------------------------------------------------------------ retention


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
