"""A circuit breaker: after some failures in a row nobody is made to wait for the storage until it is time to look."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

BreakerState = Literal["closed", "open", "half-open"]


class Breaker:
    """``failures`` in a row open it for ``cooldown_seconds``, doubled up to ``longest_seconds`` while nothing works."""

    def __init__(
        self,
        *,
        failures: int = 3,
        cooldown_seconds: float = 0.5,
        longest_seconds: float = 15.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = failures
        self._cooldown = cooldown_seconds
        self._longest = longest_seconds
        self._now = now
        self._failed = 0
        self._opened_at = 0.0
        self._looked_at = 0.0
        self._wait = cooldown_seconds

    @property
    def state(self) -> BreakerState:
        """Closed: all goes through. Open: nothing does. Half-open: the next one shows how it is."""
        if self._failed < self._limit:
            return "closed"
        return "half-open" if self._now() - self._opened_at >= self._wait else "open"

    def allows(self) -> bool:
        """Whether to try."""
        return self.state != "open"

    def admits(self) -> bool:
        """Whether to try, where many may ask at once: half-open it admits one, and the next if that is not heard of."""
        if self.state == "half-open":
            if self._looked_at > self._opened_at and self._now() - self._looked_at < self._wait:
                return False
            self._looked_at = self._now()
        return self.allows()

    def succeeded(self) -> None:
        """It works."""
        self._failed = 0
        self._wait = self._cooldown

    def failed(self) -> None:
        """It does not."""
        if self._failed >= self._limit and self.state == "half-open":
            self._wait = min(self._wait * 2, self._longest)
        self._failed += 1
        self._opened_at = self._now()

    def seconds_left(self) -> float:
        """Until it is time to look again."""
        if self._failed < self._limit:
            return self._cooldown
        return max(0.0, self._opened_at + self._wait - self._now())
