"""Which partition of a lane was served last: the partitions of a lane take turns, as the lanes of a queue do."""

from __future__ import annotations

LANES = 10_000  # of which it is remembered; a forgotten lane begins with its first partition again


class Served:
    """The turns of the partitions, in this process: each process that claims serves all of them in turn."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], str] = {}

    def last(self, queue: str, lane: str) -> str:
        """Return the partition that was served last; empty: none."""
        return self._last.get((queue, lane), "")

    def note(self, queue: str, lane: str, partition: str) -> None:
        self._last.pop((queue, lane), None)
        self._last[queue, lane] = partition
        if len(self._last) > LANES:
            del self._last[next(iter(self._last))]
