"""Sweeps by itself: a store in use looks, from time to time, for what has expired and what its policy lets go."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

from keelbolt.data.sweeping import Removed, sweep_expired, sweep_in_turn
from keelbolt.errors import InvalidState
from keelbolt.state.policy import logger
from keelbolt.state.retention.policy import StateRetention
from keelbolt.state.retention.sweep import sweep_state
from keelbolt.storage import Kernel

SWEEP_SECONDS = 3600.0
FIRST_SECONDS = 60.0  # after the store was made: programs that end soon do not sweep


class Sweeper:
    """Says when a sweep is due, and does it. Of all processes one sweeps a tenant in each period."""

    def __init__(
        self,
        partition: str,
        retention: StateRetention | None,
        every: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if every is not None and (isinstance(every, bool) or not isinstance(every, int | float) or not every > 0):
            raise InvalidState(f"sweep_every is a number of seconds, or None for never, not {every!r}")
        self._partition = partition
        self._retention = retention or StateRetention()
        self._every = every
        self._clock = clock
        self._due = None if every is None else clock() + min(every, FIRST_SECONDS)

    def due(self) -> bool:
        """Whether it is time; then the next period begins."""
        if self._due is None or self._every is None or self._clock() < self._due:
            return False
        self._due = self._clock() + self._every
        return True

    async def sweep(self, kernel: Kernel) -> Removed | None:
        """Sweep, unless another process has done so in this period. An error is logged: the next period tries again."""
        assert self._every is not None

        async def sweep_tenant(kernel: Kernel) -> Removed:
            swept = asdict(await sweep_state(kernel.scoped(self._partition), self._retention))
            return {what: count for what, count in swept.items() if count}

        try:
            await sweep_in_turn(kernel, "expired", sweep_expired, every=self._every / 2)
            return await sweep_in_turn(kernel, self._partition, sweep_tenant, every=self._every / 2)
        except Exception as error:  # noqa: BLE001  (no caller waits for it)
            logger.warning("statestore_sweep_failed: %r", error)
            return None
