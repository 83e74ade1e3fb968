"""The clocks of this machine."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from keelbolt.kernel.clock import Clock
from keelbolt.testing.clock import FakeClock


def test_the_wall_clock_is_microseconds_since_1970() -> None:
    before = time.time_ns() // 1000
    assert before <= Clock().wall() <= time.time_ns() // 1000


def test_the_steady_clock_ignores_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    before = clock.steady()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert clock.wall() == 0
    assert clock.steady() >= before


def test_processes_share_the_steady_clock_and_the_boot() -> None:
    """A lease must end at the same time for all processes."""
    clock = Clock()
    before = clock.steady()
    program = "from keelbolt.kernel.clock import Clock; c = Clock(); print(c.steady(), c.boot())"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    theirs, boot = answer.stdout.split()
    assert before <= int(theirs) <= clock.steady()
    assert boot == clock.boot() != ""


def test_a_fake_clock_moves_only_on_request() -> None:
    clock = FakeClock()
    wall, steady, boot = clock.wall(), clock.steady(), clock.boot()
    assert (clock.wall(), clock.steady()) == (wall, steady)
    clock.advance(1.5)
    assert (clock.wall() - wall, clock.steady() - steady) == (1_500_000, 1_500_000)
    clock.jump(-3600)
    assert (clock.wall() < wall, clock.steady() - steady) == (True, 1_500_000)
    clock.reboot()
    assert clock.boot() != boot
    assert clock.steady() < steady
