"""A clock that stands still until a test advances it."""

from __future__ import annotations

from keelbolt.kernel.clock import Clock

MICROSECONDS = 1_000_000


class FakeClock(Clock):
    """Pass it to an engine as its ``clock``.

    ``advance`` lets time pass, ``jump`` sets the wall clock, ``reboot`` simulates a restart of the machine.
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
        """Let time pass on both clocks."""
        self._wall += int(seconds * MICROSECONDS)
        self._steady += int(seconds * MICROSECONDS)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._wall += int(seconds * MICROSECONDS)

    def reboot(self, *, seconds: float = 30.0) -> None:
        """Simulate a reboot: the machine is off for ``seconds``, and the steady clock restarts."""
        self._wall += int(seconds * MICROSECONDS)
        self._steady = 1 * MICROSECONDS
        self._boots += 1
