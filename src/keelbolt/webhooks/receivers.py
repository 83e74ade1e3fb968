"""Receivers of webhooks: the stored delivery state, the delay of retries, and the limit on concurrent deliveries.

One bad receiver must not delay the others. A slow receiver has a few deliveries in progress; its other deliveries wait
without a slot. For a silent receiver (no connection, or no response in time), one delivery at a time tests whether it
is back; the others are postponed immediately.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from keelbolt.kernel import Record

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


# --------------------------------------------------------------------------------------------------------------- cursor


FIRST_SECONDS = 1.0
LONGEST_SECONDS = 15 * 60.0

Status = Literal["active", "failed"]


class DeliveryCursor(msgspec.Struct, frozen=True, gc=False):
    """The position and state of deliveries to one receiver.

    ``seq`` is the last delivered event. ``since`` is the start of the current series of failures, ``retry_at`` the time
    of the next attempt (seconds since 1970). A ``late`` cursor was created while its task ran: the process that runs
    the task may not know the config yet. ``tried_at`` is the time of the last attempt, and ``code`` the HTTP status of
    the response (0: none). ``category`` is the kind of error that callers see; ``error`` is the cause, for operators.
    """

    seq: int = 0
    delivered: int = 0
    failures: int = 0
    since: float = 0.0
    error: str = ""
    status: Status = "active"
    retry_at: float = 0.0
    late: bool = False
    tried_at: float = 0.0
    code: int = 0
    category: str = ""

    def tried(self, now: float, code: int) -> DeliveryCursor:
        """Record an attempt; `arrived` and `failed` record its outcome."""
        return replace(self, tried_at=now, code=code)

    def arrived(self, seq: int, *, counted: bool = True) -> DeliveryCursor:
        if not self.failures:
            return replace(self, seq=seq, delivered=self.delivered + counted)
        return replace(self.again(seq), status=self.status, delivered=self.delivered + counted)

    def failed(self, error: str, now: float, dice: random.Random, *, category: str = "internal") -> DeliveryCursor:
        failures, since = self.failures + 1, self.since or now
        again = replace(self, failures=failures, since=since, error=error[:500], category=category)
        return replace(again, retry_at=now + again.wait_seconds(dice))

    def given_up(self) -> DeliveryCursor:
        return replace(self, status="failed", retry_at=0.0)

    def again(self, after: int | None = None) -> DeliveryCursor:
        """Reset to active, from the current position or after this event."""
        seq = self.seq if after is None else after
        return replace(self, seq=seq, status="active", failures=0, since=0.0, error="", category="", retry_at=0.0)

    def wait_seconds(self, dice: random.Random) -> float:
        """Return the time until the next attempt: doubled after each failure, with jitter."""
        return self._longest_wait() * (0.5 + dice.random() / 2)

    def _longest_wait(self) -> float:
        return min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(max(self.failures - 1, 0), 20))

    def due_in(self, now: float) -> float:
        """Return the time until the next attempt; 0 or less: it is due.

        A time that is further away than the longest wait was stored before the wall clock was set back.
        """
        wait = self.retry_at - now
        return wait if wait <= self._longest_wait() else 0.0

    def json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def of(cls, record: Record) -> DeliveryCursor:
        return msgspec.json.decode(record.body, type=cls)
