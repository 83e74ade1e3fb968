"""How long finished tasks are kept, by state: what is older is erased. Nothing is erased unless it is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Self

from keelbolt.errors import InvalidValue
from keelbolt.protocol.types import TaskState

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def minutes(count: float) -> float:
    return count * UNITS["m"]


def hours(count: float) -> float:
    return count * UNITS["h"]


def days(count: float) -> float:
    return count * UNITS["d"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long a task stays after its status changed for the last time, in seconds; None: for ever.

    RetentionPolicy(completed=days(30), failed=days(90), log=hours(1))

    Tasks that are submitted or working are never erased; those that wait for their user are, if an age is given.
    ``log`` is how long the entries of a finished task can be read one by one: afterwards its snapshot alone is left,
    and a reader who comes too late is told so. A context's own value goes with the last of its tasks.
    """

    completed: float | None = None
    failed: float | None = None
    canceled: float | None = None
    rejected: float | None = None
    input_required: float | None = None
    auth_required: float | None = None
    log: float | None = None
    every: float = 600.0  # a process that keeps this policy looks so often

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
                raise InvalidValue(f"{field.name} is a number of seconds that is not negative, not {value!r}")
        if not self.every > 0:
            raise InvalidValue("every is more than 0 seconds")

    def ages(self) -> Iterator[tuple[TaskState, float]]:
        """The states whose tasks are erased, and after how many seconds."""
        for name in STATES:
            age: float | None = getattr(self, name)
            if age is not None:
                yield TaskState[name], age

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """The policy that people write: ``completed=30d``, ``failed=12w``, ``log=1h``; several in one text, too."""
        names = [field.name for field in fields(cls)]
        ages: dict[str, float] = {}
        for text in texts:
            for word in re.split(r"[\s,]+", text.strip()):
                name, _, age = word.partition("=")
                if name not in names:
                    raise InvalidValue(f"{word!r} is not what=age, as in completed=30d; what: {', '.join(names)}")
                ages[name] = read_age(age)
        return cls(**ages)


STATES = ("completed", "failed", "canceled", "rejected", "input_required", "auth_required")


def read_age(text: str) -> float:
    """Seconds of ``90s``, ``15m``, ``12h``, ``30d`` or ``4w``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip(), re.ASCII)
    if found is None:
        raise InvalidValue(f"{text!r} is no age; write 90s, 15m, 12h, 30d or 4w")
    return float(found[1]) * UNITS[found[2]]
