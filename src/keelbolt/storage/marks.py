"""A mark on a whole store: a copy is being made of it, into it, or has taken its place.

Every engine looks at it before it writes; a store without one, which is nearly every store, pays nothing for it.

| state | commits and claims | ends |
|---|---|---|
| followed | pass, and note what they touch | by itself, when the copier stays away |
| paused | are refused for a moment | by itself, soon: then the store is followed again |
| moved | are refused | never |
| filling | are refused, except the copier's | when the copy is whole |
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from keelbolt.errors import StorageFilling, StorageMoved, StoragePaused, StorageUnavailable

MarkState = Literal["followed", "paused", "moved", "filling"]
MARK = "mark"  # its name among an engine's settings


@dataclass(frozen=True, slots=True)
class Mark:
    """``copy`` is the id of the copy that set it; the times are the engine's, at which the mark and the pause end."""

    state: MarkState
    copy: str
    until: int | None = None
    paused_until: int = 0

    def over(self, now: int) -> bool:
        return self.until is not None and now >= self.until

    def follows(self, now: int) -> bool:
        return self.state in ("followed", "paused") and not self.over(now)

    def refusal(self, now: int) -> StorageUnavailable | None:
        """Why nothing may be written now, if that is so."""
        match self.state:
            case "followed":
                return None
            case "paused":
                return StoragePaused() if now < self.paused_until else None
            case "moved":
                return StorageMoved()
            case "filling":
                return StorageFilling()

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def until_later(cls, state: MarkState, copy: str, *, now: int, seconds: float | None, pause: float) -> Mark:
        until = None if seconds is None else now + int(seconds * 1_000_000)
        return cls(state, copy, until, now + int(pause * 1_000_000))

    @classmethod
    def load(cls, text: str | None) -> Mark | None:
        return cls(**json.loads(text)) if text else None
