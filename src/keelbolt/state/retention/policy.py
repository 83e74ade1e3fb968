"""What may go, by age and by number."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self

from keelbolt.errors import InvalidValue

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRetention:
    """Ages are in seconds since something was saved, numbers are of the newest that stay; None: all of it stays.

    ``events`` and ``planner_events`` are counted for each trace, ``updates``, ``steering``, ``trajectories`` and
    ``artifacts`` for each session. Events that came together go together, so that some more than the number may stay.
    Of ``tasks`` those go that are over, of ``bindings`` all, of ``memory`` all but the values that tools keep
    (``ctx.kv``), of ``artifacts`` those that were not used for so long. ``sessions`` removes whole sessions
    that were not in use for so long, with everything that is theirs but memory, whose keys are the callers'.
    """

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

    def __post_init__(self) -> None:
        for field in fields(self):
            value, counted = getattr(self, field.name), field.name.startswith("max_")
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int if counted else int | float) or not value >= 0:
                what = "a number" if counted else "a number of seconds"
                raise InvalidValue(f"{field.name} is {what} that is not negative, not {value!r}")

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """The policy that people write: ``events=30d``, ``updates=10000``; several in one text, too."""
        names = [field.name for field in fields(cls)]
        known = [name for name in names if not name.startswith("max_")]
        limits: dict[str, float | int] = {}
        for word in (word for text in texts for word in re.split(r"[\s,]+", text.strip()) if word):
            name, _, limit = word.partition("=")
            number = limit.isascii() and limit.isdecimal() and len(limit) < 16
            if name not in known or (number and f"max_{name}" not in names):
                numbered = ", ".join(name for name in known if f"max_{name}" in names)
                raise InvalidValue(
                    f"{word!r} is not what=age or what=number, as in events=30d or updates=10000; "
                    f"ages: {', '.join(known)}; numbers: {numbered}"
                )
            limits[f"max_{name}" if number else name] = int(limit) if number else _age(limit)
        return cls(**limits)  # type: ignore[arg-type]


def _age(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text, re.ASCII)
    if found is None:
        raise InvalidValue(f"{text!r} is no age; write 90s, 15m, 12h, 30d or 4w")
    return float(found[1]) * _UNITS[found[2]]
