"""The partition served last for each fairness key: its partitions take turns, as the fairness keys of a queue do."""

from __future__ import annotations

LANES = 10_000  # fairness keys remembered; a forgotten one starts again with its first partition


class PartitionTurns:
    """Turns of the partitions, per process: each process that claims serves all of them in turn."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], str] = {}

    def last(self, queue: str, lane: str) -> str:
        """Return the partition that was served last, or "" if there is none."""
        return self._last.get((queue, lane), "")

    def note(self, queue: str, lane: str, partition: str) -> None:
        self._last.pop((queue, lane), None)
        self._last[queue, lane] = partition
        if len(self._last) > LANES:
            del self._last[next(iter(self._last))]
