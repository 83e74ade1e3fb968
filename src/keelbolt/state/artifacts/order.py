"""What the writers of one process share: the time, whose turn it is, and which use came last."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

SWEEP_SECONDS = 60.0  # so often a process that puts something looks for what has expired


class Order:
    """One for each artifact store. ``clock`` is Unix time in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rank = 0
        self._swept = self.now()
        self._waiting: WeakValueDictionary[str, deque[Any]] = WeakValueDictionary()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def now(self) -> int:
        """Microseconds since 1970."""
        return int(self._clock() * 1_000_000)

    def rank(self) -> int:
        """The same, each larger than the one before."""
        self._rank = max(self.now(), self._rank + 1)
        return self._rank

    def sweeping(self) -> bool:
        """Whether it is time to sweep; then the time begins anew."""
        due = self.now() - self._swept >= SWEEP_SECONDS * 1_000_000
        if due:
            self._swept = self.now()
        return due

    def lock(self, group: str) -> asyncio.Lock:
        """Puts of one session take turns, so that they need not refuse each other."""
        return self._locks.setdefault(group, asyncio.Lock())

    def waiting(self, group: str) -> deque[Any]:
        """What waits for the lock of this session, to be put in one commit."""
        return self._waiting.setdefault(group, deque())
