"""A circuit breaker: after several consecutive failures, callers fail at once until the next attempt is due."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

BreakerState = Literal["closed", "open", "half-open"]


class Breaker:
    """Opens after ``failures`` in a row for ``cooldown_seconds``.

    Each failed retry doubles this time, up to ``longest_seconds``.
    """

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
        """Closed: all calls pass. Open: none pass. Half-open: the next call tests the storage."""
        if self._failed < self._limit:
            return "closed"
        return "half-open" if self._now() - self._opened_at >= self._wait else "open"

    def allows(self) -> bool:
        """Return whether a call may be tried."""
        return self.state != "open"

    def admits(self) -> bool:
        """Return whether one of several concurrent callers may try.

        When half-open, admit one call, and another one if the first has not reported a result in time.
        """
        if self.state == "half-open":
            if self._looked_at > self._opened_at and self._now() - self._looked_at < self._wait:
                return False
            self._looked_at = self._now()
        return self.allows()

    def succeeded(self) -> None:
        """Record a success and close the breaker."""
        self._failed = 0
        self._wait = self._cooldown

    def failed(self) -> None:
        """Record a failure."""
        if self._failed >= self._limit and self.state == "half-open":
            self._wait = min(self._wait * 2, self._longest)
        self._failed += 1
        self._opened_at = self._now()

    def seconds_left(self) -> float:
        """Return the seconds until the next attempt."""
        if self._failed < self._limit:
            return self._cooldown
        return max(0.0, self._opened_at + self._wait - self._now())
