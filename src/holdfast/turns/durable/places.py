"""Where a turn lies in the kernel, and what refuses a process that no longer runs it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import CommitRefused, TurnTakenOver
from holdfast.storage import FieldIn
from holdfast.turns.durable.families import TURNS


@dataclass(frozen=True, slots=True)
class Place:
    """``turn`` is the key of the turn's record, ``run`` which run of it this is (0: that is not kept)."""

    partition: str
    owner: str
    turn: str
    run: int
    tenant: str
    thread: str

    @property
    def guards(self) -> tuple[FieldIn, ...]:
        guard = guard_of(self.turn, self.run)
        return () if guard is None else (guard,)

    def check(self, refusal: CommitRefused) -> None:
        """Raises TurnTakenOver if that is what the refusal says."""
        if refusal.check in self.guards:
            raise TurnTakenOver


def guard_of(turn: str, run: int) -> FieldIn | None:
    """What refuses a commit of this run once another one has begun."""
    return FieldIn(TURNS, turn, "run", (run,)) if run else None
