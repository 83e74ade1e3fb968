"""Memories, which last across turns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from keelbolt.errors import InvalidInitialMemoryValue
from keelbolt.turns.primitives.checks import refusing, share, text, times, words
from keelbolt.turns.primitives.text import Tokenizable
from keelbolt.turns.primitives.times import Moment


@refusing(InvalidInitialMemoryValue)
@dataclass(frozen=True, slots=True, eq=False, init=False)
class Memory:
    """A fact that outlives its turn. ``confidence`` and ``importance`` range from 0 to 1."""

    id: str
    content: Tokenizable
    confidence: float
    importance: float
    created_at: datetime
    updated_at: datetime

    def __init__(
        self,
        *,
        id: str,  # noqa: A002
        content: str | Tokenizable,
        confidence: float,
        importance: float,
        created_at: Moment | None = None,
        updated_at: Moment | None = None,
    ) -> None:
        object.__setattr__(self, "id", text("id", id))
        object.__setattr__(self, "content", words("content", content))
        object.__setattr__(self, "confidence", share("confidence", confidence))
        object.__setattr__(self, "importance", share("importance", importance))
        created, updated = times(created_at, updated_at)
        object.__setattr__(self, "created_at", created)
        object.__setattr__(self, "updated_at", updated)
