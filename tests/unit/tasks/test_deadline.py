"""The time until a stored deadline does not depend on changes of the wall clock."""

from __future__ import annotations

import pytest

from keelbolt.tasks.steps import new_deadline, seconds_left
from keelbolt.testing.clock import FakeClock


@pytest.mark.parametrize("jump", [-3600.0, -3.0, 0.0, 3.0, 3600.0])
def test_the_wall_clock_of_the_same_boot_changes_nothing(jump: float) -> None:
    clock = FakeClock()
    deadline = new_deadline(clock, 5.0)
    clock.advance(2.0)
    clock.jump(jump)
    assert seconds_left(clock, deadline, otherwise=0.0) == 3.0
    clock.advance(3.0)
    assert seconds_left(clock, deadline, otherwise=0.0) == 0.0


@pytest.mark.parametrize(("jump", "left"), [(0.0, 70.0), (-20.0, 90.0), (-3600.0, 7.0), (3600.0, -3530.0)])
def test_the_wall_clock_decides_after_a_reboot(jump: float, left: float) -> None:
    clock = FakeClock()
    deadline = new_deadline(clock, 100.0)
    clock.reboot(seconds=30.0)
    clock.jump(jump)
    assert seconds_left(clock, deadline, otherwise=7.0) == left


def test_a_deadline_of_version_0_1_is_a_wall_time() -> None:
    clock = FakeClock()
    assert seconds_left(clock, clock.wall() + 5_000_000, otherwise=0.0) == 5.0
