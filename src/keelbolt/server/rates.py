"""How often one caller may ask: a token bucket each."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from math import ceil

from keelbolt.auth import Principal
from keelbolt.errors import RateLimitedError

MAX_BUCKETS = 10_000  # the callers of the last moments; who is forgotten begins with a full bucket


class Rates:
    """``per_second`` 0: everybody may ask as often as they like."""

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = float(max(burst, 1))
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # partition → (tokens, when)

    def check(self, who: Principal) -> None:
        """Take a token; raises RateLimitedError."""
        if self._per_second <= 0:
            return
        now = self._clock()
        tokens, when = self._buckets.pop(who.partition, (self._burst, now))
        tokens = min(self._burst, tokens + (now - when) * self._per_second)
        allowed = tokens >= 1
        self._buckets[who.partition] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if not allowed:
            raise RateLimitedError(retry_after=max(1, ceil((1 - tokens) / self._per_second)))
