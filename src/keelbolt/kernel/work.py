"""Work: (queue, key) → ready time, holder and fence. An item carries no data: it points at a record.

The life of an item:

    waiting ──claim──▶ held ──Complete──▶ (gone)
       ▲                │
       ├──Release───────┤  the attempt is not counted
       ├──Retry─────────┤  the attempt is counted; after the last one: dead
       └──Enqueue── dead ◀──Bury
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from keelbolt.kernel.scope import Scope


WorkState = Literal["waiting", "held", "dead"]


class WorkItem(Struct, frozen=True, gc=False):
    """A work item as it was when it was read. ``ready_in`` is in seconds; negative: it has been ready for that long."""

    partition: str
    queue: str
    key: str
    state: WorkState
    lane: str
    priority: int
    attempt: int
    max_attempts: int
    fence: int
    holder: str | None
    ready_in: float
    reason: str | None


class WorkPage(Struct, frozen=True, gc=False):
    """Some work items, and the cursor of the next page (None: this was the last)."""

    items: tuple[WorkItem, ...]
    cursor: str | None


class Claim(Struct, frozen=True):
    """A held item. Every write made under it carries its fence, so that a holder that lost the item can't write.

    ``scope`` is the item's partition, in which its holder commits. ``attempt`` counts from 1. An ``exhausted`` item has
    used all its attempts without a result (each holder died): it is claimed only so that its end can be written
    together with `bury`, in one commit.
    """

    scope: Scope
    queue: str
    key: str
    fence: int
    attempt: int
    max_attempts: int
    lane: str
    priority: int

    @property
    def partition(self) -> str:
        return self.scope.partition

    @property
    def exhausted(self) -> bool:
        return self.attempt > self.max_attempts

    def fenced(self) -> Fence:
        return Fence(self.queue, self.key, self.fence)

    def complete(self) -> Complete:
        return Complete(self.queue, self.key, self.fence)

    def release(self, *, ready_in: float = 0.0) -> Release:
        return Release(self.queue, self.key, self.fence, ready_in)

    def retry(self, reason: str, *, ready_in: float = 0.0) -> Retry:
        return Retry(self.queue, self.key, self.fence, reason, ready_in)

    def bury(self, reason: str) -> Bury:
        return Bury(self.queue, self.key, self.fence, reason)


# ---------------------------------------------------------------------------------------------------------- checks


class Fence(Struct, frozen=True, gc=False):
    """Check: the item is held under exactly this fence. (An expired lease counts until a takeover.)"""

    queue: str
    key: str
    fence: int


# ---------------------------------------------------------------------------------------------------------- writes


class Enqueue(Struct, frozen=True, gc=False):
    """Add a work item that is ready in ``ready_in`` seconds.

    An item that already waits becomes ready at the earlier of the two times and takes the new fairness key (``lane``),
    priority and max_attempts. An item that is held waits again after its holder completes it, so no enqueue is lost. A
    dead item starts again. With ``worker`` the item is claimed in the same commit (refused if it is already held); a
    worker without a running lease gets one of 15 seconds.
    """

    queue: str
    key: str
    ready_in: float = 0.0  # seconds
    lane: str = ""  # fairness key; fairness keys take turns, then the partitions of each
    priority: int = 0  # higher first, within its fairness key and partition
    max_attempts: int = 5
    worker: str | None = None


class Complete(Struct, frozen=True, gc=False):
    """Remove the finished item, or let it wait again if it was enqueued while held."""

    queue: str
    key: str
    fence: int


class Release(Struct, frozen=True, gc=False):
    """Give the unfinished item back for another worker; this attempt is not counted."""

    queue: str
    key: str
    fence: int
    ready_in: float = 0.0  # seconds


class Retry(Struct, frozen=True, gc=False):
    """Try again in ``ready_in`` seconds; after the last attempt the item is dead, with this reason."""

    queue: str
    key: str
    fence: int
    reason: str
    ready_in: float = 0.0  # seconds


class Bury(Struct, frozen=True, gc=False):
    """Make the item a dead letter with this reason; it stays visible until it is requeued, enqueued or removed.

    An Enqueue that came while the item was held is dropped.
    """

    queue: str
    key: str
    fence: int
    reason: str


class Remove(Struct, frozen=True, gc=False):
    """Remove the item in any state; its holder's fence becomes invalid. No error if there is none."""

    queue: str
    key: str


# ------------------------------------------------------------------------------------------------------ partition turns


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
