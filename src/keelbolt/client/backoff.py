"""Waiting time between attempts: doubles each time up to a limit, with jitter."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

FIRST_SECONDS = 0.1
MOST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Passed to ``on_reconnect`` before each retry: cause, consecutive attempts without progress, delay in seconds."""

    cause: Exception
    attempt: int
    seconds: float
    task_id: str | None = None


class Backoff:
    """Computes delays until ``total_seconds`` pass without progress."""

    def __init__(
        self, total_seconds: float, clock: Callable[[], float], chance: Callable[[], float] = random.random
    ) -> None:
        self._total = total_seconds
        self._clock = clock
        self._chance = chance
        self._since: float | None = None
        self.attempt = 0

    def progress(self) -> None:
        """Reset after progress."""
        self.attempt, self._since = 0, None

    def next(self, at_least: float = 0.0) -> float | None:
        """Return the seconds to wait before the next attempt; None to give up."""
        now = self._clock()
        if self._since is None:
            self._since = now
        left = self._since + self._total - now
        if left <= 0:
            return None
        most: float = min(MOST_SECONDS, FIRST_SECONDS * 2 ** min(self.attempt, 20))
        self.attempt += 1
        return min(max(at_least, most * (0.5 + self._chance() / 2)), left)
