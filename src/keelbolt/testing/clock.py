"""A clock that stands still until it is told otherwise."""

from __future__ import annotations

from keelbolt.storage.clock import Clock

MICROSECONDS = 1_000_000


class FakeClock(Clock):
    """Give it to an engine as its ``clock``.

    ``advance`` is time going by, ``jump`` somebody setting the wall clock, ``reboot`` a new boot of the machine.
    """

    def __init__(self, *, wall: int = 1_767_225_600 * MICROSECONDS, steady: int = 1000 * MICROSECONDS) -> None:
        self._wall = wall  # 2026-01-01
        self._steady = steady
        self._boots = 1

    def wall(self) -> int:
        return self._wall

    def steady(self) -> int:
        return self._steady

    def boot(self) -> str:
        return f"boot-{self._boots}"

    def advance(self, seconds: float) -> None:
        """Time goes by, for both clocks."""
        self._wall += int(seconds * MICROSECONDS)
        self._steady += int(seconds * MICROSECONDS)

    def jump(self, seconds: float) -> None:
        """The wall clock is set forward, or back; no time goes by."""
        self._wall += int(seconds * MICROSECONDS)

    def reboot(self, *, seconds: float = 30.0) -> None:
        """The machine is off for a while; the steady clock starts anew."""
        self._wall += int(seconds * MICROSECONDS)
        self._steady = 1 * MICROSECONDS
        self._boots += 1
