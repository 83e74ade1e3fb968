"""How far a turn is. Kept with what its iterations store, it lets a turn that was interrupted go on where it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from keelbolt.turns.context import TurnContext


@dataclass(frozen=True, slots=True)
class Progress:
    """``iterations`` are stored; ``ended``: the last of them was acknowledged, and nothing is left to dispatch."""

    iterations: int = 0
    ended: bool = False


class ProgressStore(Protocol):
    """Knows how far turns are that were given a ``turn_id``."""

    async def begin(self, ctx: TurnContext, /) -> Progress:
        """This process runs the turn from now on; another one that still does can store nothing more of it."""
        ...

    async def reached(self, ctx: TurnContext, progress: Progress, /) -> None:
        """Called within the unit of work of each iteration, so that it is stored with it or not at all."""
        ...

    def leave(self, ctx: TurnContext, /) -> None:
        """The run is over, however it ended."""
        ...
