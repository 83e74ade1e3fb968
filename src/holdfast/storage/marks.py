"""A mark on a whole store: a copy is being made of it, into it, or has taken its place.

Every engine looks at it before it writes; a store without one, which is nearly every store, pays nothing for it.

| state | commits and claims | ends |
|---|---|---|
| followed | pass, and note what they touch | by itself, when the copier stays away |
| paused | are refused for a moment | by itself, when the copier stays away |
| moved | are refused | never |
| filling | are refused, except the copier's | when the copy is whole |
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from holdfast.errors import StorageFilling, StorageMoved, StoragePaused, StorageUnavailable

MarkState = Literal["followed", "paused", "moved", "filling"]
MARK = "mark"  # its name among an engine's settings


@dataclass(frozen=True, slots=True)
class Mark:
    """``copy`` is the id of the copy that set it; ``until`` is the engine's time at which it ends."""

    state: MarkState
    copy: str
    until: int | None = None

    def follows(self, now: int) -> bool:
        return self.state == "followed" and self.until is not None and now < self.until

    def refusal(self, now: int) -> StorageUnavailable | None:
        """Why nothing may be written now, if that is so."""
        match self.state:
            case "followed":
                return None
            case "paused":
                return StoragePaused() if self.until is not None and now < self.until else None
            case "moved":
                return StorageMoved()
            case "filling":
                return StorageFilling()

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str | None) -> Mark | None:
        return cls(**json.loads(text)) if text else None
