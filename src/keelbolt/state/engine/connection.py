"""The connection to the storage, its circuit breaker, and the policies for an unavailable storage.

The connection is opened at first use, and reopened after it breaks.

The policy ``strict`` raises `StateNotSaved` for saves. ``resilient`` keeps a failed save in a spool and replays it, in
order, when the storage is back. Loads raise `StateNotLoaded` under both, since a failed load must not look like missing
data. Both log ``statestore_save_failed`` and ``statestore_load_failed``; both reject invalid arguments.

Circuit breaker: after several consecutive failures, callers fail at once until the next attempt is due.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from keelbolt.errors import CannotOpen, KeelboltError, StorageBroken, StorageClosed
from keelbolt.kernel import Kernel
from keelbolt.state.families import FAMILIES

CLOSED = "this state store is closed; create a new one"


class StoreConnection:
    """``opening`` creates a kernel that this link opens; ``given`` is an open kernel whose owner closes it."""

    def __init__(self, opening: Callable[[], Kernel] | None = None, *, given: Kernel | None = None) -> None:
        self._opening = opening
        self._given = given is not None
        self._lock = asyncio.Lock()
        self._closed = False
        self._ready = False
        self.kernel: Kernel | None = given
        """The kernel while it is open, otherwise None."""

    @property
    def open(self) -> Kernel | None:
        """The kernel if it can be used without waiting, otherwise None."""
        return self.kernel if self._ready else None

    async def opened(self) -> Kernel:
        """Return the kernel; open it if necessary."""
        if self._ready and self.kernel is not None:
            return self.kernel
        async with self._lock:
            if self._closed:
                raise StorageClosed(CLOSED)
            if not self._ready:
                if self.kernel is None:
                    assert self._opening is not None
                    kernel = self._opening()
                    await kernel.open()
                    self.kernel = kernel
                await self.kernel.declare(*FAMILIES)
                self._ready = True
            assert self.kernel is not None
            return self.kernel

    async def broke(self, error: BaseException) -> None:
        """Release the kernel if this error means that it is unusable, so that the next use reopens it."""
        if self._given or not isinstance(error, StorageBroken | CannotOpen):
            return
        async with self._lock:
            kernel, self.kernel, self._ready = self.kernel, None, False
            if kernel is not None:
                with contextlib.suppress(KeelboltError):
                    await kernel.close()

    async def close(self) -> None:
        """Close the kernel, unless the caller owns it."""
        async with self._lock:
            self._closed = True
            kernel, self.kernel, self._ready = self.kernel, None, False
            if kernel is not None and not self._given:
                await kernel.close()


# --------------------------------------------------------------------------------------------------------------- policy


logger = logging.getLogger("keelbolt.state")

PolicyName = Literal["strict", "resilient"]


@dataclass(slots=True)
class Counters:
    """Counts since the store was created."""

    saved: int = 0
    save_failures: int = 0
    spooled: int = 0
    replayed: int = 0
    lost: int = 0
    loaded: int = 0
    load_failures: int = 0


def tell_save_failed(
    method: str, trace_id: str | None, error: BaseException, *, key: str | None = None, kept: bool = False
) -> None:
    """Log a failed save; ``kept``: it waits in the spool."""
    _tell(
        logging.WARNING if kept else logging.ERROR, "statestore_save_failed", method, trace_id or key, trace_id, error
    )


def tell_load_failed(method: str, trace_id: str | None, error: BaseException, *, key: str | None = None) -> None:
    """Log a failed load."""
    _tell(logging.ERROR, "statestore_load_failed", method, trace_id or key, trace_id, error)


def _tell(level: int, event: str, method: str, key: str | None, trace_id: str | None, error: BaseException) -> None:
    cause = repr(error)
    fields = {"event": event, "method": method, "trace_id": trace_id, "key": key, "exception": cause}
    logger.log(level, "%s: %s(%s): %s", event, method, "" if key is None else repr(key), cause, extra=fields)


# -------------------------------------------------------------------------------------------------------------- breaker


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
