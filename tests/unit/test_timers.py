"""Timers of one length share one timer of the loop: they fire in order, almost on time, and never after a cancel."""

from __future__ import annotations

import asyncio
from functools import partial
from weakref import ref

import pytest

from keelbolt.timers import LATE, Timer, call_later, within


async def test_timers_fire_in_order_and_not_early() -> None:
    loop = asyncio.get_running_loop()
    rung: list[tuple[int, float]] = []
    began: list[float] = []

    def ring(number: int) -> None:
        rung.append((number, loop.time()))

    for number in range(20):
        began.append(loop.time())
        call_later(0.05, partial(ring, number))
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.3)
    assert [number for number, _ in rung] == list(range(20))
    assert all(at - began[number] >= 0.05 for number, at in rung)


async def test_timers_that_are_due_about_the_same_time_fire_together() -> None:
    """A hundred timers that start within the allowed lateness fire in the same call."""
    rung: list[int] = []
    stack = [0]
    loop = asyncio.get_running_loop()

    def ring() -> None:
        if not rung or rung[-1] != stack[0]:
            rung.append(stack[0])
        loop.call_soon(count)

    def count() -> None:
        stack[0] += 1

    for _ in range(10):
        for _ in range(10):
            call_later(1.6, ring)  # late by 50 ms at most
        await asyncio.sleep(0.001)
    await asyncio.sleep(1.6 * (1 + LATE) + 0.2)
    assert len(rung) <= 2


async def test_a_cancelled_timer_does_not_fire() -> None:
    """This holds if another timer that fires at the same moment cancels it."""
    rung: list[str] = []
    timers: list[Timer] = []

    def first() -> None:
        rung.append("first")
        timers[1].cancel()

    timers.append(call_later(0.02, first))
    timers.append(call_later(0.02, lambda: rung.append("second")))
    call_later(0.02, lambda: rung.append("third"))
    before = call_later(0.02, lambda: rung.append("fourth"))
    before.cancel()
    before.cancel()
    await asyncio.sleep(0.1)
    assert rung == ["first", "third"]


async def test_a_timer_may_set_the_next_one() -> None:
    rung: list[int] = []

    def again() -> None:
        rung.append(len(rung))
        if len(rung) < 3:
            call_later(0.01, again)

    call_later(0.01, again)
    await asyncio.sleep(0.3)
    assert rung == [0, 1, 2]


async def test_within() -> None:
    with within(5.0):
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError), within(0.02):
        await asyncio.sleep(5)


@pytest.mark.parametrize("seconds", [0.01, 5.0])
async def test_a_timer_that_rang_or_was_cancelled_does_not_keep_its_owner(seconds: float) -> None:
    class Owner:
        def __init__(self) -> None:
            self.timer = call_later(seconds, self.ring)

        def ring(self) -> None:
            pass

    owner = Owner()
    gone = ref(owner)
    await asyncio.sleep(0.05)
    if seconds > 1:
        owner.timer.cancel()
    del owner
    assert gone() is None
