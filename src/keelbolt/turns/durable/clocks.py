"""The numbers by which the records of one owner are ordered: in the order of their commits, whoever commits.

An owner has one record whose *version* is its clock: a commit that stores something raises it by one, and is refused
when another process raised it meanwhile. A record's seq is that version and its place in the commit. So nothing is
read to get a number: this process remembers the version that it saw last, and a refusal says the one that is true. Of
two processes that write to one thread at the same moment one commits a second time; otherwise nobody waits for anybody,
and several commits of one process can be under way at once, since call order is commit order.

The record also says when that was and what kind of owner it is, so that threads are listed by when they were last used.
"""

from __future__ import annotations

from dataclasses import dataclass

from keelbolt.storage import Insert, Replace
from keelbolt.storage.records import Scalar
from keelbolt.turns.durable.families import STREAMS

PLACES = 1 << 20  # in one commit; the kernel allows fewer operations than that
_REMEMBERED = 10_000  # owners; forgetting one costs a refused commit


@dataclass(slots=True)
class _Clock:
    """The version that the next commit expects. ``era`` grows when it proves wrong."""

    version: int = 0
    era: int = 0


@dataclass(frozen=True, slots=True)
class Tick:
    """One commit's raising of a clock: the operation for it, and the first seq that it gives."""

    owner: str
    clock: _Clock
    version: int
    era: int
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

    def refused(self, found: int) -> None:
        """The clock stood at ``found``. The first of several that guessed wrong says so; the others follow it."""
        if self.clock.era == self.era:
            self.clock.version = found
            self.clock.era += 1

    def undone(self) -> None:
        """The commit came to nothing for another reason; those called after it will find out by themselves."""
        if self.clock.era == self.era and self.clock.version == self.version + 1:
            self.clock.version = self.version


class Clocks:
    """What this process knows about the clocks of owners; a guess, which each commit checks."""

    def __init__(self) -> None:
        self._clocks: dict[tuple[str, str], _Clock] = {}

    def tick(self, partition: str, owner: str, at: int) -> Tick:
        """Raise this owner's clock; the next tick counts on it, though it may come before the commit is done."""
        if len(self._clocks) >= _REMEMBERED:
            self._clocks.clear()
        clock = self._clocks.setdefault((partition, owner), _Clock())
        tick = Tick(owner, clock, clock.version, clock.era, at)
        clock.version += 1
        return tick


def used(owner: str, at: int) -> dict[str, Scalar]:
    """What the record of a clock says beside its version: a thread, an agent or the tenant stored something then."""
    return {"kind": owner.partition("/")[0], "at": at}
