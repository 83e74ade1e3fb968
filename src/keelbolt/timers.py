"""Timers that are nearly always cancelled: timers of the same length share one timer of the event loop.

A request sets a few time limits and reaches none of them. `loop.call_later` pushes each onto the loop's heap and leaves
it there after its cancel; here a timer costs a dict entry. In return, a timer may fire late, by up to 1/32 of its
length: timers that are due at about the same time fire together, so that thousands of heartbeats rarely wake the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

LATE = 1 / 32  # maximum delay, as a share of the length

_queues: dict[float, _Queue] = {}  # by length; each belongs to the loop that used it last


class Timer:
    """A scheduled call; `cancel` removes it."""

    __slots__ = ("at", "call", "queue")

    def __init__(self, queue: _Queue, at: float, call: Callable[[], object]) -> None:
        self.queue = queue
        self.at = at
        self.call = call

    def cancel(self) -> None:
        self.queue.timers.pop(self, None)
        self.call = _nothing  # the owner of a timer often holds it: no cycle is left for the garbage collector


class _Queue:
    """The timers of one length, in the order in which they are due."""

    __slots__ = ("late", "loop", "running", "timers")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.loop = loop
        self.late = seconds * LATE
        self.timers: dict[Timer, None] = {}
        self.running = False

    def ring(self) -> None:
        now = self.loop.time()
        due: list[Timer] = []
        self.running = False
        for timer in self.timers:
            if timer.at > now:
                self.running = True
                self.loop.call_at(max(timer.at, now + self.late), self.ring)
                break
            due.append(timer)
        for timer in due:
            call = timer.call  # of a timer that an earlier call has cancelled: nothing
            timer.cancel()
            call()


def _nothing() -> None:
    pass


def call_later(seconds: float, call: Callable[[], object]) -> Timer:
    """Call ``call`` after this many seconds, in the running loop."""
    loop = asyncio.get_running_loop()
    queue = _queues.get(seconds)
    if queue is None or queue.loop is not loop:  # the timers of another loop's queue are kept by that loop
        queue = _queues[seconds] = _Queue(loop, seconds)
    at = loop.time() + seconds
    timer = Timer(queue, at, call)
    queue.timers[timer] = None
    if not queue.running:
        queue.running = True
        loop.call_at(at + queue.late, queue.ring)
    return timer


class within:  # noqa: N801 - used like asyncio.timeout
    """A block that raises TimeoutError if it takes longer than ``seconds``, as `asyncio.timeout` does."""

    __slots__ = ("_before", "_expired", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = task.cancelling()
        self._timer = call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()
        if self._expired and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error
