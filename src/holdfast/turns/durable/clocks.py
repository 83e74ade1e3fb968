"""The numbers by which the records of one owner are ordered: in the order of their commits, whoever commits.

An owner has one record whose *version* is its clock: a commit that stores something raises it by one, and is refused
when another process raised it meanwhile. A record's seq is that version and its place in the commit. So nothing is
read to get a number: this process remembers the version that it saw last, and a refusal says the one that is true. Of
two processes that write to one thread at the same moment one commits a second time; otherwise nobody waits for anybody,
and several commits of one process can be under way at once, since call order is commit order.
"""

from __future__ import annotations

from holdfast.storage import Insert, Replace
from holdfast.turns.durable.families import STREAMS

PLACES = 1 << 20  # in one commit; the kernel allows fewer operations than that
_REMEMBERED = 10_000  # owners; forgetting one costs a refused commit


class Clocks:
    """What this process knows about the clocks of owners; a guess, which each commit checks."""

    def __init__(self) -> None:
        self._versions: dict[tuple[str, str], int] = {}

    def tick(self, partition: str, owner: str) -> tuple[Insert | Replace, int]:
        """The operation that raises this owner's clock, and the first seq of the commit that carries it."""
        place = partition, owner
        version = self._versions.get(place, 0)
        if len(self._versions) >= _REMEMBERED:
            self._versions.clear()
        self._versions[place] = version + 1  # for the next commit, which may be called before this one is done
        operation = Replace(STREAMS, owner, version, b"") if version else Insert(STREAMS, owner, b"")
        return operation, (version + 1) * PLACES

    def learn(self, partition: str, owner: str, version: int) -> None:
        """A refusal said at which version it is."""
        self._versions[partition, owner] = version

    def forget(self, partition: str, owner: str) -> None:
        """The commit failed: nobody knows whether the clock was raised."""
        self._versions.pop((partition, owner), None)
