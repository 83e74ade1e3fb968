"""State that the artifact writers of one process share: the clock, the locks of sessions, and the order of use."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

SWEEP_SECONDS = 60.0  # minimum time between the sweeps that puts trigger in a process


class WriteOrder:
    """Shared by all writers of one artifact store. ``clock`` is Unix time in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rank = 0
        self._swept = self.now()
        self._waiting: WeakValueDictionary[str, deque[Any]] = WeakValueDictionary()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def now(self) -> int:
        """Return the time in microseconds since 1970."""
        return int(self._clock() * 1_000_000)

    def rank(self) -> int:
        """Return the time in microseconds since 1970, strictly increasing."""
        self._rank = max(self.now(), self._rank + 1)
        return self._rank

    def sweeping(self) -> bool:
        """Return whether a sweep is due; if so, start the next period."""
        due = not 0 <= self.now() - self._swept < SWEEP_SECONDS * 1_000_000  # also if the clock was set back
        if due:
            self._swept = self.now()
        return due

    def lock(self, group: str) -> asyncio.Lock:
        """Return the session's lock. It serializes puts, so that their commits do not refuse each other."""
        return self._locks.setdefault(group, asyncio.Lock())

    def waiting(self, group: str) -> deque[Any]:
        """Return the queue of puts that wait for the lock of this session and will share one commit."""
        return self._waiting.setdefault(group, deque())
