"""Messages of user and assistant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from keelbolt.errors import InvalidInitialMessageValue
from keelbolt.turns.primitives.checks import Moment, Wrong, keep, one_of, refusing, text, times, words
from keelbolt.turns.primitives.identity import Identity, author
from keelbolt.turns.primitives.media import Media
from keelbolt.turns.primitives.text import Tokenizable

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
