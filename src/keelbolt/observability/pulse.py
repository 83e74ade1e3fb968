"""How many tasks ended in this process, and how long they took: for who looks at it now, without any metrics on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

RECENT = 256


@dataclass(slots=True)
class Pulse:
    """``recent`` are the seconds that the last ones took, from their beginning to their end."""

    ended: int = 0
    failed: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def end(self, seconds: float, *, failed: bool) -> None:
        self.ended += 1
        self.failed += failed
        self.recent.append(seconds)

    def quantile(self, part: float) -> float | None:
        """So large a part of the last ones took no longer than this; None: there were none."""
        if not self.recent:
            return None
        return sorted(self.recent)[min(len(self.recent) - 1, int(len(self.recent) * part))]
