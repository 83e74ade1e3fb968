"""Addresses of turns in the kernel, and the checks that refuse a process that no longer runs its turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from keelbolt.errors import CommitRefused, TurnTakenOver
from keelbolt.kernel import FieldIn, Scope
from keelbolt.turns.codec.kinds import Kind
from keelbolt.turns.durable.families import TURNS
from keelbolt.turns.durable.scope import under


@dataclass(frozen=True, slots=True)
class WriteAddress:
    """Address for a turn's writes: its id, its tenant's scope, and the owners of its records."""

    turn: str
    scope: Scope
    owners: Mapping[Kind, str]
    run: int = 0  # number of this run of the turn; 0: not tracked

    @property
    def guard(self) -> FieldIn | None:
        """The check that refuses a run of this turn after another run has started."""
        return guard_of(under(self.owners["message"], self.turn), self.run) if self.run else None

    def same_turn(self, other: WriteAddress) -> bool:
        return self.turn == other.turn and self.scope == other.scope and self.owners == other.owners


@dataclass(frozen=True, slots=True)
class TurnAddress:
    """Address of a turn's record. ``turn`` is its key, ``run`` the number of this run (0: not tracked)."""

    scope: Scope
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
        """Raise TurnTakenOver if the guard caused the refusal."""
        if refusal.check in self.guards:
            raise TurnTakenOver


def guard_of(turn: str, run: int) -> FieldIn | None:
    """Return the check that refuses a commit of this run after another run has started."""
    return FieldIn(TURNS, turn, "run", (run,)) if run else None
