"""Where turns lie in the kernel, and what refuses a process that no longer runs one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from keelbolt.errors import CommitRefused, TurnTakenOver
from keelbolt.storage import FieldIn, Scope
from keelbolt.turns.codec.kinds import Kind
from keelbolt.turns.durable.families import TURNS
from keelbolt.turns.durable.scope import under


@dataclass(frozen=True, slots=True)
class Where:
    """Whose turn it is, and which: the scope of its tenant, and who owns what it stores."""

    turn: str
    scope: Scope
    owners: Mapping[Kind, str]
    run: int = 0  # which run of the turn this is; 0: that is not kept

    @property
    def guard(self) -> FieldIn | None:
        """What refuses a run of this turn that another one has taken over."""
        return guard_of(under(self.owners["message"], self.turn), self.run) if self.run else None

    def same_turn(self, other: Where) -> bool:
        return self.turn == other.turn and self.scope == other.scope and self.owners == other.owners


@dataclass(frozen=True, slots=True)
class Place:
    """``turn`` is the key of the turn's record, ``run`` which run of it this is (0: that is not kept)."""

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
        """Raises TurnTakenOver if that is what the refusal says."""
        if refusal.check in self.guards:
            raise TurnTakenOver


def guard_of(turn: str, run: int) -> FieldIn | None:
    """What refuses a commit of this run once another one has begun."""
    return FieldIn(TURNS, turn, "run", (run,)) if run else None
