"""The queues of the memory engine: they select the next item for a claim.

Heap entries may be outdated: code that pops one compares it with the work row and drops it if they differ.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sized
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

from keelbolt.kernel.ledger import Key, WorkRow

Rows = dict[Key, WorkRow | None]
Heap = list[tuple[int, int, int, Key]]
T = TypeVar("T", bound=Sized)


class MemoryQueues:
    def __init__(self) -> None:
        self.leases: dict[str, int] = {}  # worker: end of its lease
        self.held: defaultdict[str, set[Key]] = defaultdict(set)  # worker: items
        self._lanes: defaultdict[str, OrderedDict[str, OrderedDict[str, Heap]]] = defaultdict(OrderedDict)
        self._later: defaultdict[str, list[tuple[int, int, Key]]] = defaultdict(list)
        self._number = count()

    def change(self, key: Key, old: WorkRow | None, new: WorkRow | None, *, now: int) -> None:
        if old is not None and old.holder is not None:
            self.held[old.holder].discard(key)
        if new is None:
            return
        if new.holder is not None:
            self.held[new.holder].add(key)
        elif new.state == "waiting":
            if new.ready_at > now:
                heappush(self._later[key[1]], (new.ready_at, next(self._number), key))
            else:
                self._ready(key, new)

    def _ready(self, key: Key, row: WorkRow) -> None:
        lane = self._lanes[key[1]].setdefault(row.lane, OrderedDict())
        heappush(lane.setdefault(key[0], []), (-row.priority, row.ready_at, next(self._number), key))

    def expired(self, queue: str, rows: Rows, *, now: int) -> Iterator[Key]:
        """Yield the items whose holder's lease has ended."""
        gone = [worker for worker in self.held if self.leases.get(worker, 0) <= now]
        for worker in gone:
            yield from sorted((key for key in self.held[worker] if key[1] == queue), key=lambda key: _fence(rows[key]))

    def ready(self, queue: str, rows: Rows, *, now: int) -> Iterator[Key]:
        """Yield the waiting items that are ready: the fairness keys in turn, and the partitions of each in turn."""
        later = self._later[queue]
        while later and later[0][0] <= now:
            _, _, key = heappop(later)
            row = rows.get(key)
            if row is not None and row.state == "waiting" and row.ready_at <= now:
                self._ready(key, row)
        lanes = self._lanes[queue]
        while lanes:
            name, lane = next(iter(lanes.items()))
            found = None
            while lane and found is None:
                partition, heap = next(iter(lane.items()))
                found = self._next(name, heap, rows, now)
                _passed(lane, partition, heap)
            _passed(lanes, name, lane)
            if found is not None:
                yield found

    def _next(self, name: str, heap: Heap, rows: Rows, now: int) -> Key | None:
        while heap:
            priority, ready_at, _, key = heappop(heap)
            row = rows.get(key)
            if row is None or row.state != "waiting" or row.ready_at > now:
                continue
            if (row.lane, -row.priority, row.ready_at) == (name, priority, ready_at):
                return key
        return None


def _passed(turns: OrderedDict[str, T], name: str, left: T) -> None:
    """End a turn: move the name to the end, or remove it if it has no items left."""
    if left:
        turns.move_to_end(name)
    else:
        del turns[name]


def _fence(row: WorkRow | None) -> int:
    return row.fence if row else 0
