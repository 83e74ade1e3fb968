"""How far a receiver was told, and how it goes: kept beside the config, changed by whoever delivers."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

from pydantic_core import from_json, to_json

from holdfast.storage import Record

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 15 * 60.0

Status = Literal["active", "failed"]


@dataclass(frozen=True, slots=True)
class Cursor:
    """``seq`` is the last event that arrived. ``since`` is when the row of failures began (seconds since 1970)."""

    seq: int = 0
    delivered: int = 0
    failures: int = 0
    since: int = 0
    error: str = ""
    status: Status = "active"

    def arrived(self, seq: int, *, counted: bool = True) -> Cursor:
        return replace(self, seq=seq, delivered=self.delivered + counted, failures=0, since=0, error="")

    def failed(self, error: str, now: int) -> Cursor:
        return replace(self, failures=self.failures + 1, since=self.since or now, error=error[:500])

    def given_up(self) -> Cursor:
        return replace(self, status="failed")

    def again(self) -> Cursor:
        """Active once more, from where it stands."""
        return replace(self, status="active", failures=0, since=0, error="")

    def wait_seconds(self, dice: random.Random) -> float:
        """How long until the next try: twice as long each time, somewhat scattered."""
        longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self.failures - 1, 20))
        return longest * (0.5 + dice.random() / 2)

    def json(self) -> bytes:
        return to_json(
            {
                "seq": self.seq,
                "delivered": self.delivered,
                "failures": self.failures,
                "since": self.since,
                "error": self.error,
                "status": self.status,
            }
        )

    @classmethod
    def of(cls, record: Record) -> Cursor:
        return cls(**from_json(record.body))
