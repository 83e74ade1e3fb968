"""Figures of the histories: takeovers, outages, responses per second."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import pairwise
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

TAKEOVERS = {  # kinds of takeover times, and their rows in the report
    "all": "run of a task whose process was killed",
    "undisturbed": "the same, if another process was alive and the store available all the time",
    "able": "the same for all, without the time in which no process was alive or the store failed",
}
ROUNDING_SECONDS = 1e-6

Interval = tuple[float, float]


def percentile(values: list[float], share: float) -> float:
    """Return the percentile of sorted values."""
    return values[min(int(len(values) * share), len(values) - 1)] if values else 0.0


def takeovers(read: Histories) -> dict[str, list[float]]:
    """Return the sorted seconds from the kill of a process to the next run of each of its tasks, by `TAKEOVERS`."""
    killed = {note["pid"]: note["at"] for note in read.notes["fault"] if note["fault"] == "kill"}
    alive, faults = _alive(read), _store_faults(read)
    running: dict[str, dict[str, Any]] = {}
    found: dict[str, list[float]] = {name: [] for name in TAKEOVERS}
    for note in sorted((*read.notes["run"], *read.notes["left"]), key=lambda note: note["at"]):
        before = running.pop(note["task"], None)
        if note["what"] == "left":
            continue
        running[note["task"]] = note
        if before is None:
            continue
        pid = int(before["by"].rpartition("-")[2])
        if pid not in killed or not before["at"] <= killed[pid] <= note["at"]:
            continue
        seconds = note["at"] - killed[pid]
        able = _able(killed[pid], note["at"], alive, faults)
        found["all"].append(seconds)
        found["able"].append(able)
        if able > seconds - ROUNDING_SECONDS:
            found["undisturbed"].append(seconds)
    return {name: sorted(times) for name, times in found.items()}


def _alive(read: Histories) -> list[Interval]:
    """Return when agents were able to take over: from the start of each until its end, without its stops."""
    ends: dict[int, list[float]] = defaultdict(list)
    starts: dict[int, list[float]] = defaultdict(list)
    for note in read.notes["ready"]:
        starts[int(note["by"].rpartition("-")[2])].append(note["at"])
    for note in read.notes["continued"]:
        starts[note["pid"]].append(note["at"])
    for note in (*read.notes["fault"], *read.notes["died"]):
        ends[note["pid"]].append(note["at"])
    return [
        (start, min((end for end in ends[pid] if end >= start), default=float("inf")))
        for pid, times in starts.items()
        for start in times
    ]


def _store_faults(read: Histories) -> list[Interval]:
    """Return when the store was disturbed. Its faults follow each other."""
    began = [note["at"] for note in read.notes["fault"] if note["pid"] == 0]
    over = [note["at"] for note in read.notes["over"]]
    return list(zip(began, [*over, float("inf")][: len(began)], strict=True))


def _able(first: float, last: float, alive: list[Interval], faults: list[Interval]) -> float:
    """Return the seconds of this window during which an agent was alive and the store available."""
    near = [interval for interval in alive if interval[1] > first and interval[0] < last]
    times = {time for interval in (*near, *faults) for time in interval if first < time < last}
    seconds = 0.0
    for start, end in pairwise(sorted({first, last, *times})):
        middle = (start + end) / 2
        if any(a < middle < b for a, b in near) and not any(a < middle < b for a, b in faults):
            seconds += end - start
    return seconds


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
