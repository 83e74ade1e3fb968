"""Linearizability of registers with versions.

The general check (Wing and Gong's, or Knossos') searches an order of the operations that explains all results. Here the
store gives each write a version, and versions are dense: they are the order. So the check takes linear time: each
version was written once, a read returns the value of its version, and no operation sees a version older than one that
ended before it started.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """A read, or a write from ``version`` to the next one. ``done`` is None without a response."""

    kind: str  # read or write
    version: int
    value: str | None
    began: float
    ended: float
    done: bool | None = True


def violations(operations: list[Operation]) -> list[str]:
    """Return the results that no order of these operations explains."""
    found: list[str] = []
    written: dict[int, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.kind == "write" and operation.done is not False:
            written[operation.version + 1].append(operation)
    for version, writes in written.items():
        if sum(write.done is True for write in writes) > 1:
            values = sorted(str(write.value) for write in writes if write.done)
            found.append(f"version {version} was written by {len(values)} writers: {', '.join(values)}")
    reads = [operation for operation in operations if operation.kind == "read" and operation.done]
    for read in reads:
        if read.version == 0:
            continue
        candidates = [write for write in written[read.version] if write.began <= read.ended]
        if read.value not in {write.value for write in candidates}:
            found.append(f"a read of version {read.version} got {read.value!r}, which no writer wrote as that version")
        sure = [write for write in written[read.version] if write.done is True]
        if sure and read.value != sure[0].value:
            found.append(f"version {read.version} is {sure[0].value!r} to its writer and {read.value!r} to a reader")
    return found + _stale(operations)


def _stale(operations: list[Operation]) -> list[str]:
    """Return operations that saw an older version than one that ended before they started."""
    ends = sorted((each.ended, _seen(each)) for each in operations if each.done)
    begins = sorted((each.began, _seen(each)) for each in operations if each.done)
    found, newest, at = [], 0, 0
    for began, seen in begins:
        while at < len(ends) and ends[at][0] < began:
            newest = max(newest, ends[at][1])
            at += 1
        if seen < newest:
            found.append(f"version {seen} was seen after version {newest} had been answered")
    return found


def _seen(operation: Operation) -> int:
    """Return the newest version that this operation proves."""
    return operation.version + (1 if operation.kind == "write" else 0)
