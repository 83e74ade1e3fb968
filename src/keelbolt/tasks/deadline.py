"""Deadlines that survive their process, such as the end of a durable sleep."""

from __future__ import annotations

from typing import Any

from keelbolt.kernel import Clock

MICROSECONDS = 1_000_000


def new_deadline(clock: Clock, seconds: float) -> dict[str, Any]:
    """Return the JSON of a deadline in ``seconds``. ``until`` is its wall time in microseconds, for display."""
    wait = int(seconds * MICROSECONDS)
    return {
        "until": clock.wall() + wait,
        "steady": clock.steady() + wait,
        "boot": clock.boot(),
        "seconds": seconds,
    }


def seconds_left(clock: Clock, deadline: dict[str, Any] | int, *, otherwise: float) -> float:
    """Return the time until a deadline; 0 or less: it is over.

    On the machine that set the deadline, its steady clock decides, so that a wall clock that is set back or forward
    changes nothing. After a reboot, and on other machines, the wall clock decides. ``otherwise`` is returned if it is
    wrong: the deadline is further away than the requested time.
    """
    if isinstance(deadline, int):  # of version 0.1.0
        return (deadline - clock.wall()) / MICROSECONDS
    if deadline["boot"] == clock.boot():
        left = (deadline["steady"] - clock.steady()) / MICROSECONDS
    else:
        left = (deadline["until"] - clock.wall()) / MICROSECONDS
    return left if left <= deadline["seconds"] else otherwise
