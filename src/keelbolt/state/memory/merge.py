"""Two processes may remember the same conversation: what one of them did is laid upon what the other has stored.

Pure. A turn is known by all it says; so the turns and the summary of both are kept, and nothing is kept twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keelbolt.errors import MemoryBudgetExceeded
from keelbolt.state.memory.contents import Contents
from keelbolt.state.memory.health import MemoryHealth, when_loaded
from keelbolt.state.memory.turns import ConversationTurn, dump


@dataclass(frozen=True, slots=True)
class Known:
    """What is surely stored: a mark by which the stored state is recognised, and what it held."""

    mark: str
    turns: frozenset[str]
    summary: str

    @classmethod
    def of(cls, state: Mapping[str, Any], contents: Contents) -> Known:
        return cls(mark(state), frozenset(name(turn) for turn in contents.everything()), contents.summary)


@dataclass(slots=True)
class Mine:
    """What this process has. ``absorbed`` are the turns that went into the summary since it was last stored."""

    contents: Contents
    health: MemoryHealth
    absorbed: list[ConversationTurn]


def mark(state: Mapping[str, Any]) -> str:
    """The same for equal states, another one for different ones."""
    return hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()


def name(turn: ConversationTurn) -> str:
    """By which a turn is recognised after it was stored and read."""
    return json.dumps(dump(turn), sort_keys=True, default=str)


NOTHING = Known("", frozenset(), "")
"""What is known of a state that was never read or written."""


def rebased(mine: Mine, theirs: Contents, their_health: MemoryHealth, known: Known) -> Mine:
    """Theirs, with what is new in mine since the state that was known.

    My summary is taken where theirs is still the one that mine was made from. Otherwise theirs holds, and what I had
    summarised and nobody else has seen is to be summarised again.
    """
    before = set(known.turns)
    held = {name(turn) for turn in theirs.everything()}
    own = [(name(turn), turn) for turn in mine.contents.everything()]
    health = when_loaded(their_health)
    taken = known.summary in (mine.contents.summary, theirs.summary)
    if not taken:
        theirs.pending += [turn for turn in mine.absorbed if name(turn) not in before | held]
    elif mine.contents.summary != known.summary:
        gone = before - {called for called, _ in own}
        theirs.summary = mine.contents.summary
        theirs.pending = [turn for turn in theirs.pending if name(turn) not in gone]
        theirs.backlog = [turn for turn in theirs.backlog if name(turn) not in gone]
        health = mine.health
    for called, turn in own:
        if called not in before and called not in held:
            with contextlib.suppress(MemoryBudgetExceeded):
                theirs.add(turn, health)
    return Mine(theirs, health, mine.absorbed if taken else [])
