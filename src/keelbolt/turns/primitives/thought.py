"""The reasoning of a model."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from keelbolt.errors import InvalidInitialThoughtValue
from keelbolt.turns.primitives.checks import Moment, keep, opaque, optional_text, refusing, replay, text, times, words
from keelbolt.turns.primitives.identity import Identity, author
from keelbolt.turns.primitives.text import Tokenizable


@refusing(InvalidInitialThoughtValue)
@dataclass(frozen=True, slots=True, eq=False, init=False)
class Thought:
    """A trace of reasoning: text, or a ``payload`` that only its provider understands, or both.

    ``replay_compatibility`` names the provider or model that a payload may be sent back to.
    ``turn_id`` is the turn that stored the thought; storage sets it when the thought is fetched.
    """

    id: str
    content: Tokenizable
    identity: Identity
    payload: Any
    replay_compatibility: str | None
    created_at: datetime
    updated_at: datetime
    turn_id: str | None

    def __init__(
        self,
        *,
        id: str,  # noqa: A002
        content: str | Tokenizable = "",
        identity: str | Identity = "assistant",
        payload: Any = None,
        replay_compatibility: str | None = None,
        created_at: Moment | None = None,
        updated_at: Moment | None = None,
        turn_id: str | None = None,
    ) -> None:
        keep(
            self,
            id=text("id", id),
            content=words("content", content, empty=payload is not None),
            identity=author(identity),
            payload=opaque(payload),
            replay_compatibility=replay(payload, replay_compatibility),
            turn_id=optional_text("turn_id", turn_id),
            **times(created_at, updated_at),
        )
