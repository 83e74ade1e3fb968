"""Work: (queue, key) → when it is ready, who holds it, under which fence. It carries no data: it points at a record.

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
    from keelbolt.storage.scope import Scope

WorkState = Literal["waiting", "held", "dead"]


class WorkItem(Struct, frozen=True, gc=False):
    """A work item as it was when it was read. ``ready_in`` is in seconds; negative: it has been ready for so long."""

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
    """A held item. Every write made in its name carries its fence, so that a holder who lost it can't write.

    ``scope`` is where the item lies: its holder commits there. ``attempt`` counts from 1. An ``exhausted`` item has
    used up its attempts without an answer (each holder died): it is handed out only so that its end can be written
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
    """Check: the item is held, under exactly this fence. (An expired lease that nobody took over still holds.)"""

    queue: str
    key: str
    fence: int


# ---------------------------------------------------------------------------------------------------------- writes


class Enqueue(Struct, frozen=True, gc=False):
    """Have this done, from ``ready_in`` seconds on.

    An item that waits already becomes ready at the earlier of the two times and takes the new lane, priority and
    max_attempts. An item that is held comes back when its holder completes it: a nudge is never lost. A dead item
    starts anew. With ``worker`` the item is claimed in the same commit (refused when it is held already); a worker
    without a running lease gets one of 15 seconds.
    """

    queue: str
    key: str
    ready_in: float = 0.0  # seconds
    lane: str = ""  # lanes take turns, and then the partitions of a lane
    priority: int = 0  # the larger goes first, within its lane and partition
    max_attempts: int = 5
    worker: str | None = None


class Complete(Struct, frozen=True, gc=False):
    """It is done: remove the item (or let it wait again, if it was enqueued anew meanwhile)."""

    queue: str
    key: str
    fence: int


class Release(Struct, frozen=True, gc=False):
    """Give it back unfinished, for another worker; this attempt is not counted."""

    queue: str
    key: str
    fence: int
    ready_in: float = 0.0  # seconds


class Retry(Struct, frozen=True, gc=False):
    """It failed: try again from ``ready_in`` seconds on; after the last attempt the item is dead, for this reason."""

    queue: str
    key: str
    fence: int
    reason: str
    ready_in: float = 0.0  # seconds


class Bury(Struct, frozen=True, gc=False):
    """Give up: the item is dead, for this reason, and stays visible until it is requeued, enqueued or removed.

    What was enqueued while it was held is dropped with it.
    """

    queue: str
    key: str
    fence: int
    reason: str


class Remove(Struct, frozen=True, gc=False):
    """Remove the item in any state; a holder's fence no longer holds. No error when there is none."""

    queue: str
    key: str
