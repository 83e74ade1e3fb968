"""Periodic sweeps by a store in use: expired data, and data that its policy no longer keeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

from keelbolt.data.sweeping import Removed, sweep_expired, sweep_in_turn
from keelbolt.errors import InvalidState
from keelbolt.kernel import Kernel
from keelbolt.state.engine.policy import logger
from keelbolt.state.retention.policy import StateRetention
from keelbolt.state.retention.sweep import sweep_state

SWEEP_SECONDS = 3600.0
FIRST_SECONDS = 60.0  # after the creation of the store, so that short programs do not sweep


class StateSweeper:
    """Decides when a sweep is due, and runs it. One process sweeps a tenant in each period."""

    def __init__(
        self,
        partition: str,
        retention: StateRetention | None,
        every: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if every is not None and (isinstance(every, bool) or not isinstance(every, int | float) or not every > 0):
            raise InvalidState(f"sweep_every must be a number of seconds, or None for no sweeps, not {every!r}")
        self._partition = partition
        self._retention = retention or StateRetention()
        self._every = every
        self._clock = clock
        self._due = None if every is None else clock() + min(every, FIRST_SECONDS)

    def due(self) -> bool:
        """Return whether a sweep is due; if so, start the next period."""
        if self._due is None or self._every is None or self._clock() < self._due:
            return False
        self._due = self._clock() + self._every
        return True

    async def sweep(self, kernel: Kernel) -> Removed | None:
        """Sweep, unless another process has done so in this period. Errors are logged; the next period retries."""
        assert self._every is not None

        async def sweep_tenant(kernel: Kernel) -> Removed:
            swept = asdict(await sweep_state(kernel.scoped(self._partition), self._retention))
            return {what: count for what, count in swept.items() if count}

        try:
            await sweep_in_turn(kernel, "expired", sweep_expired, every=self._every / 2)
            return await sweep_in_turn(kernel, self._partition, sweep_tenant, every=self._every / 2)
        except Exception as error:  # noqa: BLE001  (no caller awaits it)
            logger.warning("statestore_sweep_failed: %r", error)
            return None
