"""Limits concurrent deliveries per receiver, so that one bad receiver does not delay the others.

A slow receiver has a few deliveries in progress; its other deliveries wait without a slot. For a silent receiver (no
connection, or no response in time), one delivery at a time tests whether it is back; the others are postponed
immediately.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

EACH = 16  # concurrent deliveries to one receiver
MAX_KNOWN = 10_000  # maximum number of silent receivers in memory


def receiver_of(url: str) -> str:
    """Return the receiver of a URL: scheme, host and port. All its URLs share the limits."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.lower()}"


@dataclass(slots=True)
class _Receiver:
    busy: int = 0
    silent: bool = False
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Receivers:
    """``waiting`` is the number of deliveries that wait for a slot; ``changed`` is called when one starts to wait."""

    def __init__(self, changed: Callable[[], None], *, each: int = EACH) -> None:
        self.waiting = 0
        self._changed = changed
        self._each = each
        self._known: dict[str, _Receiver] = {}

    async def enter(self, url: str) -> bool:
        """Wait for a slot. Return False if the receiver is silent and another delivery tests whether it is back."""
        while True:
            receiver = self._known.setdefault(url, _Receiver())  # a new one, if it was removed during the wait
            if receiver.busy < (1 if receiver.silent else self._each):
                receiver.busy += 1
                return True
            if receiver.silent:
                return False
            await self._wait(receiver)

    async def _wait(self, receiver: _Receiver) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        receiver.waiting.append(turn)
        self.waiting += 1
        self._changed()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake(receiver)  # pass the slot to the next waiter
            raise
        finally:
            self.waiting -= 1

    def leave(self, url: str, *, silent: bool) -> None:
        """Release the slot of a delivery."""
        receiver = self._known[url]
        receiver.busy -= 1
        receiver.silent = silent
        for _ in range(len(receiver.waiting) if silent else 1):
            self._wake(receiver)
        if not receiver.busy and not receiver.silent and not receiver.waiting:
            del self._known[url]
        elif silent and len(self._known) > MAX_KNOWN:
            self._forget()

    def _wake(self, receiver: _Receiver) -> None:
        while receiver.waiting:
            turn = receiver.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _forget(self) -> None:
        oldest = next((url for url, known in self._known.items() if not known.busy and not known.waiting), None)
        if oldest is not None:
            del self._known[oldest]
