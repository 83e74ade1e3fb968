"""Two processes may remember the same conversation: what one of them did is laid upon what the other has stored.

Pure. A turn is known by all it says; so the turns and the summary of both are kept, and nothing is kept twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from holdfast.errors import MemoryBudgetExceeded
from holdfast.state.memory.contents import Contents
from holdfast.state.memory.health import MemoryHealth, when_loaded
from holdfast.state.memory.turns import ConversationTurn, dump


class Known:
    """What is surely stored: a mark by which the stored state is recognised, and what it held."""

    __slots__ = ("mark", "summary", "turns")

    def __init__(self, state: Mapping[str, Any], contents: Contents) -> None:
        self.mark = mark(state)
        self.summary = contents.summary
        self.turns = [name(turn) for turn in contents.everything()]


def mark(state: Mapping[str, Any]) -> str:
    """The same for equal states, another one for different ones."""
    return hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()


def name(turn: ConversationTurn) -> str:
    """By which a turn is recognised after it was stored and read."""
    return json.dumps(dump(turn), sort_keys=True, default=str)


def rebased(
    mine: Contents, health: MemoryHealth, theirs: Contents, their_health: MemoryHealth, known: Known | None
) -> tuple[Contents, MemoryHealth]:
    """Theirs, with what is new in mine since the state that was known.

    My summary is taken where theirs is still the one that mine was made from; otherwise theirs holds already.
    """
    before = set(known.turns) if known else set()
    held = {name(turn) for turn in theirs.everything()}
    own = [(name(turn), turn) for turn in mine.everything()]
    now = when_loaded(their_health)
    if known is not None and mine.summary != known.summary and theirs.summary == known.summary:
        gone = before - {called for called, _ in own}
        theirs.summary = mine.summary
        theirs.pending = [turn for turn in theirs.pending if name(turn) not in gone]
        theirs.backlog = [turn for turn in theirs.backlog if name(turn) not in gone]
        now = health
    for called, turn in own:
        if called not in before and called not in held:
            with contextlib.suppress(MemoryBudgetExceeded):
                theirs.add(turn, now)
    return theirs, now
