"""A mark on a whole store refuses writes: while it is copied, until a copy into it is complete, and after a move.

Every engine checks it before it writes. Reads are never refused, and leases can still be renewed.

| state | commits and claims | ends |
|---|---|---|
| copying | refused; may be retried | when the copier stops renewing it |
| moved | refused | never |
| filling | refused, except the copier's | when the copy is complete |
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from keelbolt.errors import CopyOutdated, StorageFilling, StorageMoved, StoragePaused, StorageUnavailable

MarkState = Literal["copying", "moved", "filling"]
MARK = "mark"  # its key in an engine's settings

_REFUSALS: dict[str, type[StorageUnavailable]] = {
    "copying": StoragePaused,
    "moved": StorageMoved,
    "filling": StorageFilling,
}


@dataclass(frozen=True, slots=True)
class WriteBlock:
    """``copy`` is the id of the copy that set it; ``until`` is the engine's time at which it ends (None: never)."""

    state: MarkState
    copy: str
    until: int | None = None

    def over(self, now: int) -> bool:
        return self.until is not None and now >= self.until

    def refusal(self, now: int) -> StorageUnavailable | None:
        """Return the error for a write at this time, or None if writes are allowed."""
        return None if self.over(now) else _REFUSALS[self.state]()

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str | None) -> WriteBlock | None:
        return cls(**json.loads(text)) if text else None


def changed_mark(
    old: WriteBlock | None, state: MarkState | None, copy: str, *, now: int, seconds: float | None, if_held: bool
) -> WriteBlock | None:
    """Return the new mark. With ``if_held``, raise CopyOutdated unless ``old`` is valid and belongs to this copy."""
    if if_held and (old is None or old.over(now) or old.copy != copy):
        raise lapsed()
    if state is None:
        return None
    return WriteBlock(state, copy, None if seconds is None else now + int(seconds * 1_000_000))


def lapsed() -> CopyOutdated:
    return CopyOutdated("writes were possible for a while before the copy was complete; copy again with --restart")
