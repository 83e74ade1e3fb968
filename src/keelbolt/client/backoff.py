"""How long to wait between attempts: twice as long each time, up to a bound, and never in step with other clients."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

FIRST_SECONDS = 0.1
MOST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Told before each new attempt: why, the how-maniest without progress, and after how many seconds."""

    cause: Exception
    attempt: int
    seconds: float
    task_id: str | None = None


class Backoff:
    """Waits, until too much time went by without progress."""

    def __init__(
        self, total_seconds: float, clock: Callable[[], float], chance: Callable[[], float] = random.random
    ) -> None:
        self._total = total_seconds
        self._clock = clock
        self._chance = chance
        self._since: float | None = None
        self.attempt = 0

    def progress(self) -> None:
        """Something came: begin anew when it breaks again."""
        self.attempt, self._since = 0, None

    def next(self, at_least: float = 0.0) -> float | None:
        """Seconds to wait before the next attempt; None: it is time to give up."""
        now = self._clock()
        if self._since is None:
            self._since = now
        left = self._since + self._total - now
        if left <= 0:
            return None
        most: float = min(MOST_SECONDS, FIRST_SECONDS * 2 ** min(self.attempt, 20))
        self.attempt += 1
        return min(max(at_least, most * (0.5 + self._chance() / 2)), left)
