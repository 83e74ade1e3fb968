"""The delivery state of a receiver, and the delay of its retries: stored with the config, changed by the sender."""

from __future__ import annotations

import random
from typing import Literal

import msgspec
from msgspec.structs import replace

from keelbolt.kernel import Record

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
