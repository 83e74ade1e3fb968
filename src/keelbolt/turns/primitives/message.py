"""Messages of user and assistant, the thoughts of a model, and their authors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from keelbolt.errors import InvalidInitialIdentityValue, InvalidInitialMessageValue, InvalidInitialThoughtValue
from keelbolt.turns.primitives.content import Media
from keelbolt.turns.primitives.values import (
    Moment,
    Tokenizable,
    Wrong,
    keep,
    one_of,
    opaque,
    optional_text,
    refusing,
    replay,
    text,
    times,
    words,
)

Role = Literal["user", "assistant"]


@refusing(InvalidInitialMessageValue)
@dataclass(frozen=True, slots=True, eq=False, init=False)
class Message:
    """One entry of a conversation: text, attachments or both. Results of tools are in their ToolCall."""

    id: str
    role: Role
    content: Tokenizable | None
    attachments: tuple[Media, ...]
    identity: Identity
    created_at: datetime
    updated_at: datetime

    def __init__(
        self,
        *,
        id: str,  # noqa: A002
        role: Role,
        content: str | Tokenizable | None = None,
        attachments: Iterable[Media] = (),
        identity: str | Identity | None = None,
        created_at: Moment | None = None,
        updated_at: Moment | None = None,
    ) -> None:
        keep(
            self,
            id=text("id", id),
            role=one_of("role", role, ("user", "assistant")),
            content=None if content is None else words("content", content),
            attachments=_attachments(attachments),
            identity=author(role if identity is None else identity),
            **times(created_at, updated_at),
        )
        if self.content is None and not self.attachments:
            raise Wrong("it needs content, attachments or both")


def _attachments(value: object) -> tuple[Media, ...]:
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable):
        raise Wrong(f"attachments is a list of Media, not {type(value).__name__}")
    found = tuple(value)
    for item in found:
        if not isinstance(item, Media):
            raise Wrong(f"attachments holds Media, not {type(item).__name__}")
    return found


# -------------------------------------------------------------------------------------------------------------- thought


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


# ------------------------------------------------------------------------------------------------------------- identity


@refusing(InvalidInitialIdentityValue)
@dataclass(frozen=True, slots=True, eq=False, init=False)
class Identity:
    """``identifier`` is your own and never shown to a model; ``representation`` is the text for the model."""

    identifier: str | int
    representation: Tokenizable

    def __init__(self, *, identifier: str | int, representation: str | Tokenizable) -> None:
        if isinstance(identifier, bool) or not isinstance(identifier, str | int):
            raise Wrong(f"identifier is a str or an int, not {type(identifier).__name__}")
        known = text("identifier", identifier) if isinstance(identifier, str) else identifier
        keep(self, identifier=known, representation=words("representation", representation))

    @classmethod
    def of(cls, value: str | Identity) -> Identity:
        """Return the value itself, or an Identity with a plain str as both identifier and representation."""
        return value if isinstance(value, Identity) else cls(identifier=value, representation=value)


def author(value: object) -> Identity:
    """Return the validated Identity of a message or thought; the usual ones are shared, since they are frozen."""
    if not isinstance(value, str | Identity) or value == "":
        raise Wrong(f"identity is an Identity or a non-empty str, not {value!r}")
    return _USUAL.get(value) or Identity.of(value)


_USUAL: dict[object, Identity] = {name: Identity.of(name) for name in ("user", "assistant")}
