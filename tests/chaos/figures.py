"""Figures of the histories: takeovers, outages, responses per second."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import Any

from tests.chaos.history import Histories

WRITES = (
    "send",
    "stream",
    "event",
    "remember",
    "pause",
    "artifact",
    "merge",
    "checkpoint",
    "add",
    "append",
    "pair",
    "group",
)


def percentile(values: list[float], share: float) -> float:
    """Return the percentile of sorted values."""
    return values[min(int(len(values) * share), len(values) - 1)] if values else 0.0


def takeovers(read: Histories) -> list[float]:
    """Return the sorted seconds from the kill of a process to the next run of each of its tasks."""
    killed = {note["pid"]: note["at"] for note in read.notes["fault"] if note["fault"] == "kill"}
    running: dict[str, dict[str, Any]] = {}
    found = []
    for note in sorted((*read.notes["run"], *read.notes["left"]), key=lambda note: note["at"]):
        before = running.pop(note["task"], None)
        if note["what"] == "left":
            continue
        if before is not None:
            pid = int(before["by"].rpartition("-")[2])
            if pid in killed and before["at"] <= killed[pid] <= note["at"]:
                found.append(note["at"] - killed[pid])
        running[note["task"]] = note
    return sorted(found)


def recoveries(read: Histories) -> dict[str, list[float]]:
    """Return, for each fault of the store, the seconds from its end to the next response to a write."""
    writes = sorted(
        ((asked.began, asked.ended) for what in WRITES for asked in read.answered(what)), key=lambda write: write[0]
    )
    found: dict[str, list[float]] = defaultdict(list)
    began: dict[str, float] = {}
    for note in sorted((*read.notes["fault"], *read.notes["over"]), key=lambda note: note["at"]):
        if note["what"] == "fault":
            began[note["fault"]] = note["at"]
            continue
        first = bisect_left(writes, (began[note["fault"]], 0.0))
        after = [ended for _, ended in writes[first : first + 2000] if ended >= note["at"]]
        if after:
            found[note["fault"]].append(min(after) - note["at"])
    return {fault: sorted(times) for fault, times in found.items()}


def per_second(read: Histories) -> list[tuple[float, int]]:
    """Return the responses in each second of the campaign."""
    ends = [asked.ended for found in read.requests.values() for asked in found if asked.answer is not None]
    if not ends:
        return []
    first = min(ends)
    counts = Counter(int(end - first) for end in ends)
    return [(float(second), counts[second]) for second in range(max(counts) + 1)]
