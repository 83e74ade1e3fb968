"""Sequence numbers for the records of one owner, in commit order.

An owner has one record whose *version* is its clock: a commit that stores records increments it, and is refused if
another commit incremented it first. A record's seq combines that version and its position in the commit. Normally no
read is needed to get a number: this process remembers the last version, and several of its commits can be in progress
at once, because the kernel evaluates the commits of a process in call order.

A refused commit used an outdated version, and so did the later commits of this process. Correcting the versions one by
one does not terminate when commits increment several clocks. So the refused commit waits until no commit of its tenant
is in progress, reads all of its clocks, and continues with correct numbers; the other outdated commits use its
reads. Between processes, a commit is refused only because another process has committed.

The record also has the time of the last commit and the kind of owner, so that threads are listed by last use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from keelbolt.kernel import Insert, Replace, Scope
from keelbolt.kernel.records import Scalar
from keelbolt.turns.durable.families import STREAMS

PLACES = 1 << 20  # positions per commit; the kernel allows fewer operations than that
_REMEMBERED = 2_000  # clocks of all tenants; a forgotten clock costs a refused commit
_CHECKED = 500  # commits after which the clocks are counted


@dataclass(slots=True)
class _Clock:
    """The version that the next commit expects. ``reads`` counts its reads from storage."""

    version: int = 0
    reads: int = 0


@dataclass(frozen=True, slots=True)
class Tick:
    """One commit's increment of a clock: its operation, and the first seq that it assigns."""

    owner: str
    clock: _Clock
    version: int
    reads: int
    at: int

    @property
    def operation(self) -> Insert | Replace:
        fields = used(self.owner, self.at)
        if self.version:
            return Replace(STREAMS, self.owner, self.version, b"", fields)
        return Insert(STREAMS, self.owner, b"", fields)

    @property
    def first_seq(self) -> int:
        return (self.version + 1) * PLACES

    @property
    def outdated(self) -> bool:
        """Whether the clock was read again since."""
        return self.clock.reads != self.reads

    def undone(self) -> None:
        """Revert the increment after a failed commit, unless a later commit builds on it."""
        if not self.outdated and self.clock.version == self.version + 1:
            self.clock.version = self.version


@dataclass(slots=True)
class TenantClocks:
    """The clocks of one tenant as known to this process, and the number of its commits in progress."""

    clocks: dict[str, _Clock] = field(default_factory=dict)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    under_way: int = 0

    def tick(self, owner: str, at: int) -> Tick:
        """Increment this owner's clock. The next tick builds on it, even before the commit is done."""
        clock = self.clocks.setdefault(owner, _Clock())
        tick = Tick(owner, clock, clock.version, clock.reads, at)
        clock.version += 1
        return tick

    def leave(self) -> None:
        """Mark the commit as ended."""
        self.under_way -= 1
        if not self.under_way:
            self.idle.set()

    def enter(self) -> None:
        self.under_way += 1
        self.idle.clear()


class Clocks:
    """The clock versions that this process assumes; each commit checks them."""

    def __init__(self) -> None:
        self._tenants: dict[Scope, TenantClocks] = {}
        self._commits = 0  # since the clocks were counted

    async def enter(self, scope: Scope, refused: Iterable[Tick] = ()) -> TenantClocks:
        """Begin a commit, or repeat one that was refused with these ticks. `TenantClocks.leave` ends it."""
        numbers = self._numbers(scope)
        wrong = list(refused)
        if wrong or numbers.reading.locked():
            async with numbers.reading:
                owners = [tick.owner for tick in wrong if not tick.outdated]
                if owners:
                    while numbers.under_way:  # commits in progress change the clocks
                        await numbers.idle.wait()
                    await self._read(scope, numbers, owners)
                numbers.enter()
        else:
            numbers.enter()
        return numbers

    async def _read(self, scope: Scope, numbers: TenantClocks, owners: Iterable[str]) -> None:
        for owner in owners:
            found = await scope.get(STREAMS, owner)
            clock = numbers.clocks.setdefault(owner, _Clock())
            clock.version = found.version if found is not None else 0
            clock.reads += 1

    def _numbers(self, scope: Scope) -> TenantClocks:
        self._commits += 1
        if self._commits >= _CHECKED:
            self._commits = 0
            if len(self._tenants) + sum(len(each.clocks) for each in self._tenants.values()) > _REMEMBERED:
                self._tenants = {each: numbers for each, numbers in self._tenants.items() if numbers.under_way}
        found = self._tenants.get(scope)
        if found is None:
            found = self._tenants[scope] = TenantClocks()
        return found


def used(owner: str, at: int) -> dict[str, Scalar]:
    """Return the fields of a clock's record: the kind of owner and the time of its last commit."""
    return {"kind": owner.partition("/")[0], "at": at}
