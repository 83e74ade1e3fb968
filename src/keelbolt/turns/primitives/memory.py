"""Memories, which last across turns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from keelbolt.errors import InvalidInitialMemoryValue
from keelbolt.turns.primitives.checks import Moment, keep, refusing, share, text, times, words
from keelbolt.turns.primitives.text import Tokenizable


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
        keep(
            self,
            id=text("id", id),
            content=words("content", content),
            confidence=share("confidence", confidence),
            importance=share("importance", importance),
            **times(created_at, updated_at),
        )
