"""Keeps one bad receiver from holding up the others: how many deliveries one has at once, and whether it is silent.

A slow receiver has a few deliveries under way, and the rest of its own wait without a slot. Of a silent one (no
connection, or no answer in time) one delivery at a time finds out whether it is back; the others are put off at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

EACH = 16  # deliveries to one receiver at once
MAX_KNOWN = 10_000  # silent receivers that are remembered


def receiver_of(url: str) -> str:
    """Who receives at a URL: its host and port. Whatever else stands in it, one machine answers, or does not."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.lower()}"


@dataclass(slots=True)
class _Receiver:
    busy: int = 0
    silent: bool = False
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Receivers:
    """``waiting`` is how many deliveries wait for their turn; ``changed`` is called when one begins to."""

    def __init__(self, changed: Callable[[], None], *, each: int = EACH) -> None:
        self.waiting = 0
        self._changed = changed
        self._each = each
        self._known: dict[str, _Receiver] = {}

    async def enter(self, url: str) -> bool:
        """Wait for a turn. False: the receiver is silent, and another delivery finds out whether it is back."""
        while True:
            receiver = self._known.setdefault(url, _Receiver())  # another one, if it was forgotten during the wait
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
                self._wake(receiver)  # the turn is the next one's
            raise
        finally:
            self.waiting -= 1

    def leave(self, url: str, *, silent: bool) -> None:
        """The delivery is over."""
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
