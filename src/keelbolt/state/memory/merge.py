"""Merges the memory of this process with the state that another process stored for the same conversation.

Pure. Turns are compared by their full content, so the turns and summaries of both are kept, without duplicates.
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
class KnownMemory:
    """The last known stored state: its mark (a digest), its turns and its summary."""

    mark: str
    turns: frozenset[str]
    summary: str

    @classmethod
    def of(cls, state: Mapping[str, Any], contents: Contents) -> KnownMemory:
        return cls(mark(state), frozenset(name(turn) for turn in contents.everything()), contents.summary)


@dataclass(slots=True)
class OwnMemory:
    """The state of this process. ``absorbed`` are the turns summarised since the last store."""

    contents: Contents
    health: MemoryHealth
    absorbed: list[ConversationTurn]


def mark(state: Mapping[str, Any]) -> str:
    """Return a digest of the state."""
    return hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()


def name(turn: ConversationTurn) -> str:
    """Return the identity of a turn, which survives storing and loading."""
    return json.dumps(dump(turn), sort_keys=True, default=str)


NOTHING = KnownMemory("", frozenset(), "")
"""For a state that was never read or written."""


def rebased(mine: OwnMemory, theirs: Contents, their_health: MemoryHealth, known: KnownMemory) -> OwnMemory:
    """Return the other state with the changes of this process since the known state.

    The summary of this process is used if the stored summary is still the one that it was made from. Otherwise the
    stored summary is used, and turns that only this process has summarised become pending again.
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
    return OwnMemory(theirs, health, mine.absorbed if taken else [])
