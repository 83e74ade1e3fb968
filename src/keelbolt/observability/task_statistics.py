"""Number and durations of the tasks that ended in this process: for the System page, with or without metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from keelbolt.observability.metrics import Histogram

RECENT_TASKS = 256
DURATION_BOUNDS = tuple(0.001 * 2.0**power for power in range(24))  # seconds: 1 ms to more than 2 hours


@dataclass(slots=True)
class TaskStatistics:
    """``recent`` holds the durations of the last tasks in seconds, ``seconds`` a histogram of all."""

    ended: int = 0
    failed: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_TASKS))
    seconds: Histogram = field(default_factory=lambda: Histogram(DURATION_BOUNDS))

    def end(self, seconds: float, *, failed: bool) -> None:
        self.ended += 1
        self.failed += failed
        self.recent.append(seconds)
        self.seconds.add(seconds)

    def quantile(self, part: float) -> float | None:
        """Return this quantile of the recent durations, such as 0.95 for p95; None: there are none."""
        if not self.recent:
            return None
        return sorted(self.recent)[min(len(self.recent) - 1, int(len(self.recent) * part))]


def bucket_quantile(counts: Sequence[int], part: float) -> float | None:
    """Return the quantile of durations counted by DURATION_BOUNDS, interpolated in its bucket; None: there are none."""
    left = sum(counts) * part
    if not left:
        return None
    for index, count in enumerate(counts):
        if count and left <= count:
            if index == len(DURATION_BOUNDS):
                break
            low = DURATION_BOUNDS[index - 1] if index else 0.0
            return low + (DURATION_BOUNDS[index] - low) * left / count
        left -= count
    return DURATION_BOUNDS[-1]
