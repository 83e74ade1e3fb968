"""The clock that tests control."""

from __future__ import annotations

from keelbolt.testing.clock import FakeClock


def test_it_moves_only_on_request() -> None:
    clock = FakeClock(wall=10, steady=5)
    assert (clock.wall(), clock.steady()) == (clock.wall(), clock.steady()) == (10, 5)


def test_advance_moves_both_clocks() -> None:
    clock = FakeClock(wall=10, steady=5)
    clock.advance(1.5)
    assert (clock.wall(), clock.steady()) == (1_500_010, 1_500_005)


def test_a_jump_moves_only_the_wall_clock() -> None:
    clock = FakeClock(wall=10_000_000, steady=5)
    clock.jump(-2.0)
    assert (clock.wall(), clock.steady()) == (8_000_000, 5)


def test_a_reboot_changes_the_boot_id_and_restarts_the_steady_clock() -> None:
    clock = FakeClock()
    clock.advance(5000.0)
    wall, steady, boot = clock.wall(), clock.steady(), clock.boot()
    clock.reboot(seconds=60.0)
    assert clock.boot() != boot
    assert clock.steady() < steady
    assert clock.wall() == wall + 60_000_000
