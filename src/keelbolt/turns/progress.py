"""Progress of a turn. It is stored with the iterations, so that an interrupted turn continues after the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from keelbolt.turns.context import TurnContext


@dataclass(frozen=True, slots=True)
class TurnProgress:
    """``iterations`` counts the stored iterations; ``ended``: the last one was acknowledged, no dispatch is left."""

    iterations: int = 0
    ended: bool = False


class ProgressStore(Protocol):
    """Stores the progress of turns that were given a ``turn_id``."""

    async def begin(self, ctx: TurnContext, /) -> TurnProgress:
        """Make this process the runner of the turn; writes of another process that still runs it are then refused."""
        ...

    async def reached(self, ctx: TurnContext, progress: TurnProgress, /) -> None:
        """Store the progress. Called within the unit of work of each iteration, so that both are stored or neither."""
        ...

    def leave(self, ctx: TurnContext, /) -> None:
        """End the run, after success or failure."""
        ...
