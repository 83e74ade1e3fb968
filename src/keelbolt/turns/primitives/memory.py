"""Memories, which last across turns, and retrieved knowledge."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from keelbolt.errors import InvalidInitialMemoryValue, InvalidInitialRetrievableValue
from keelbolt.turns.primitives.content import SpooledArtifact
from keelbolt.turns.primitives.values import (
    TRUST_TIERS,
    Encoder,
    Moment,
    Tokenizable,
    TrustTier,
    keep,
    one_of,
    optional_text,
    refusing,
    share,
    text,
    times,
    words,
)


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


# ---------------------------------------------------------------------------------------------------------- retrievable


@refusing(InvalidInitialRetrievableValue)
@dataclass(frozen=True, slots=True, eq=False, init=False)
class Retrievable:
    """A chunk of knowledge for a model. ``trust_tier`` is required, because the trust in its text is never guessed."""

    id: str
    content: Tokenizable | SpooledArtifact
    trust_tier: TrustTier
    source: str | None
    kind: str | None
    score: float | None
    created_at: datetime
    updated_at: datetime

    def __init__(
        self,
        *,
        id: str,  # noqa: A002
        content: str | Tokenizable | SpooledArtifact,
        trust_tier: TrustTier,
        source: str | None = None,
        kind: str | None = None,
        score: float | None = None,
        created_at: Moment | None = None,
        updated_at: Moment | None = None,
    ) -> None:
        keep(
            self,
            id=text("id", id),
            content=content if isinstance(content, SpooledArtifact) else words("content", content),
            trust_tier=one_of("trust_tier", trust_tier, TRUST_TIERS),
            source=optional_text("source", source),
            kind=optional_text("kind", kind),
            score=None if score is None else share("score", score),
            **times(created_at, updated_at),
        )

    async def content_string(self) -> str:
        """Return the whole text, read from its store if needed."""
        return str(self.content) if isinstance(self.content, Tokenizable) else await self.content.as_string()

    async def estimate_tokens(self, encoding: str | Encoder | None = None) -> int:
        if isinstance(self.content, Tokenizable):
            return self.content.estimate_tokens(encoding)
        return await self.content.estimate_tokens(encoding)
