"""Refuses late writes of a process to a session or trace that was erased meanwhile.

An erasure leaves a tombstone, whose version counts the erasures. A process remembers the version that it found at its
first write, and each of its writes checks that the version is still the same.
"""

from __future__ import annotations

import math

from keelbolt.data.families import TOMBSTONES, tombstone_key
from keelbolt.errors import CommitRefused, LeaseLost, StateErased
from keelbolt.kernel import Absent, Scope, Version


class ErasureGuard:
    """Tracks, in this process, whether a session or trace was erased.

    ``check`` is the operation that each write includes. ``noted`` is the time of this process's last note (monotonic,
    in seconds). Used by the threads of callers and of the kernel.
    """

    __slots__ = ("_key", "_used", "_version", "check", "noted")

    def __init__(self, collection: str, key: str) -> None:
        self._key = tombstone_key(collection, key)
        self._used = False
        self._version = 0
        self.not_noted()
        self._expect(0)

    def not_noted(self) -> None:
        """Make a note due: the last one was not stored, or is erased."""
        self.noted = -math.inf

    def _expect(self, version: int) -> None:
        """Expect this version of the tombstone; 0 means that there is none."""
        if version != self._version:
            self.not_noted()
        self._version = version
        self.check = Version(TOMBSTONES, self._key, version) if version else Absent(TOMBSTONES, self._key)

    async def begin(self, scope: Scope) -> None:
        """Accept the current version, also after an erasure: this process loads the current data."""
        tombstone = await scope.get(TOMBSTONES, self._key)
        self._expect(0 if tombstone is None else tombstone.version)
        self._used = True

    def written(self) -> None:
        """Record a committed write. After it, an erasure causes the next write to be refused."""
        self._used = True

    def goes_on(self, refusal: CommitRefused) -> bool:
        """Return whether a refused write may be retried: it was the first one, and the erasure preceded it."""
        if not is_tombstone(refusal) or getattr(refusal.check, "key", None) != self._key:
            return False
        assert isinstance(refusal.found, int)
        if refusal.found > self._version and self._used:
            return False
        self._expect(refusal.found)  # lower than before if the tombstone has expired
        return True


def is_tombstone(refusal: CommitRefused) -> bool:
    """Return whether a tombstone caused the refusal."""
    return isinstance(refusal.check, Absent | Version) and refusal.check.collection == TOMBSTONES


def refused_for_good(method: str, refusal: CommitRefused) -> LeaseLost | StateErased | None:
    """Return the error if another process holds the task or the session was erased; None for other refusals."""
    error: LeaseLost | StateErased
    if refusal.reason == "fence":
        error = LeaseLost()
    elif is_tombstone(refusal):
        error = StateErased(method, refusal)
    else:
        return None
    error.__cause__ = refusal
    return error
