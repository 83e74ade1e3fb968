"""Messages of user and assistant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from keelbolt.errors import InvalidInitialMessageValue
from keelbolt.turns.primitives.checks import Wrong, one_of, refusing, text, times, words
from keelbolt.turns.primitives.identity import Identity, identity
from keelbolt.turns.primitives.media import Media
from keelbolt.turns.primitives.text import Tokenizable
from keelbolt.turns.primitives.times import Moment

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
        speaker = one_of("role", role, ("user", "assistant"))
        said = None if content is None else words("content", content)
        object.__setattr__(self, "id", text("id", id))
        object.__setattr__(self, "role", speaker)
        object.__setattr__(self, "content", said)
        object.__setattr__(self, "attachments", _attachments(attachments))
        object.__setattr__(self, "identity", _identity("identity", speaker if identity is None else identity))
        created, updated = times(created_at, updated_at)
        object.__setattr__(self, "created_at", created)
        object.__setattr__(self, "updated_at", updated)
        if said is None and not self.attachments:
            raise Wrong("it needs content, attachments or both")


_identity = identity  # the field of this name shadows it


def _attachments(value: object) -> tuple[Media, ...]:
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable):
        raise Wrong(f"attachments is a list of Media, not {type(value).__name__}")
    found = tuple(value)
    for item in found:
        if not isinstance(item, Media):
            raise Wrong(f"attachments holds Media, not {type(item).__name__}")
    return found
