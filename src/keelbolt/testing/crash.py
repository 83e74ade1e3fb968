"""Crash points: a process that ends, or stops, exactly at a named point of a commit.

An engine that takes a ``probe`` calls it at every point of `POINTS`, in this order, for each batch of commits:

    kernel = SQLiteKernel(path, probe=CrashPoint("saved", hit=3))

kills its own process when the third batch is written but not yet committed.
"""

from __future__ import annotations

import os
import signal
from typing import Self

POINTS = (
    "taken",  # the batch was taken from the queue
    "locked",  # no other process can write now
    "begun",  # the transaction is open
    "judged",  # the callers' checks are done, nothing is written yet
    "saved",  # everything is written, nothing is committed
    "committed",  # the batch is durable, no caller has its result yet
    "acknowledged",  # the callers are about to get their results
)


class CrashPoint:
    """A probe that sends a signal to its own process at the n-th hit of a point."""

    def __init__(self, point: str, *, hit: int = 1, with_signal: signal.Signals = signal.SIGKILL) -> None:
        if point not in POINTS:
            raise ValueError(f"{point!r} is not a crash point; choose one of: {', '.join(POINTS)}")
        self.point = point
        self.signal = with_signal
        self._left = hit

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``point:hit`` or ``point:hit:SIGNAL``, the form used for arguments of child processes."""
        point, hit, *name = text.split(":")
        return cls(point, hit=int(hit), with_signal=signal.Signals[name[0]] if name else signal.SIGKILL)

    def __call__(self, point: str) -> None:
        if point == self.point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), self.signal)
