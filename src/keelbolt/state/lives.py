"""Refuses the late writes of a process to a session or trace that was erased meanwhile.

An erasure leaves a tombstone, whose version counts the erasures. A process remembers which version it found at its
first write, and each of its writes checks that the version is still the same.
"""

from __future__ import annotations

import math

from keelbolt.data.families import TOMBSTONES, tombstone_key
from keelbolt.errors import CommitRefused, LeaseLost, StateErased
from keelbolt.storage import Absent, Scope, Version


class Life:
    """A session or trace as this process uses it, between two erasures.

    ``check`` is what each write carries. ``noted`` is when this process last wrote its note (monotonic time in
    seconds). Used by the threads of callers and of the kernel.
    """

    __slots__ = ("_key", "_used", "_version", "check", "noted")

    def __init__(self, collection: str, key: str) -> None:
        self._key = tombstone_key(collection, key)
        self._used = False
        self.noted = -math.inf
        self._expect(0)

    def _expect(self, version: int) -> None:
        """``version`` is that of the tombstone; 0: there is none."""
        self._version = version
        self.check = Version(TOMBSTONES, self._key, version) if version else Absent(TOMBSTONES, self._key)

    async def begin(self, scope: Scope) -> None:
        """Go on from here, also after an erasure: this process loads what is stored now."""
        tombstone = await scope.get(TOMBSTONES, self._key)
        self._expect(0 if tombstone is None else tombstone.version)
        self._used = True

    def written(self) -> None:
        """A write of this process was committed: from now on an erasure refuses the next one."""
        self._used = True

    def goes_on(self, refusal: CommitRefused) -> bool:
        """Whether a refused write may be repeated: it was the first one, and the erasure was before it."""
        if not is_tombstone(refusal) or getattr(refusal.check, "key", None) != self._key:
            return False
        assert isinstance(refusal.found, int)
        if refusal.found > self._version and self._used:
            return False
        self._expect(refusal.found)  # less than before: the tombstone has expired
        return True


def is_tombstone(refusal: CommitRefused) -> bool:
    """Whether a tombstone refused the commit."""
    return isinstance(refusal.check, Absent | Version) and refusal.check.collection == TOMBSTONES


def refused_for_good(method: str, refusal: CommitRefused) -> LeaseLost | StateErased | None:
    """The error of a write whose work another process has, or whose session was erased; None for other refusals."""
    error: LeaseLost | StateErased
    if refusal.reason == "fence":
        error = LeaseLost()
    elif is_tombstone(refusal):
        error = StateErased(method, refusal)
    else:
        return None
    error.__cause__ = refusal
    return error
