"""The result of a ``save_*`` call. The call itself passes the write on; awaiting the result waits for the commit.

Callers can treat it as a coroutine (`asyncio.create_task` accepts it), but need not await it: writes are saved in call
order even if no caller awaits them.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
from collections.abc import Callable, Generator, Iterable
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec

from keelbolt.eager import FinishedCall
from keelbolt.errors import KeelboltError

P = ParamSpec("P")


class Saved(FinishedCall):
    """The result of a save that is already acknowledged."""

    __slots__ = ()


class Saving(Saved):
    """Done when the write is committed, spooled or lost. ``heard``: a caller awaits it.

    The write continues if a waiting caller is cancelled. `settle` sets ``done`` before it reads the waiters, and a
    caller adds its waiter before it reads ``done``: so each waiter is woken, without a lock.
    """

    __slots__ = ("done", "error", "heard", "steps", "waiters")

    def __init__(self) -> None:
        self.done = False
        self.error: BaseException | None = None
        self.heard = False
        self.waiters: list[asyncio.Future[None]] = []
        self.steps: Generator[Any, Any, None] | None = None

    def __await__(self) -> Generator[Any, Any, None]:
        self.heard = True
        if not self.done:
            waiter = asyncio.get_running_loop().create_future()
            self.waiters.append(waiter)
            if not self.done:
                yield from waiter
        if self.error is not None:
            raise self.error

    def send(self, value: Any) -> Any:
        if self.steps is None:
            self.steps = self.__await__()
        return self.steps.send(value)

    def throw(self, kind: Any, value: BaseException | object = None, at: TracebackType | None = None) -> Any:
        if self.steps is None:
            return super().throw(kind, value, at)
        return self.steps.throw(value if isinstance(value, BaseException) else kind)

    def close(self) -> None:
        if self.steps is not None:
            self.steps.close()


SAVED = Saved()


def settle(savings: Iterable[Saving], error: BaseException | None = None) -> None:
    """Complete these saves, from any thread. Each event loop with waiting callers is woken once for all of them.

    Waking it for each save would cost a system call and a thread switch per save.
    """
    waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for saving in savings:
        saving.error = error
        saving.done = True
        for waiter in saving.waiters:
            waiting.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, waiters in waiting.items():
        if loop is asyncio._get_running_loop():  # noqa: SLF001  (the public functions raise if no loop runs)
            _wake(waiters)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and its callers are gone
                loop.call_soon_threadsafe(_wake, waiters)


def _wake(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def refused(error: BaseException) -> Saving:
    """Return a save that failed before it was passed on."""
    saving = Saving()
    settle((saving,), error)
    return saving


def handed_over(save: Callable[P, Saved]) -> Callable[P, Saved]:
    """Make a ``save_*`` look like a coroutine function: `inspect.iscoroutinefunction` and `AsyncMock` recognise it.

    An error of the call is raised when the result is awaited, as with a coroutine function.
    """

    @wraps(save)
    def saving(*args: P.args, **kwargs: P.kwargs) -> Saved:
        try:
            return save(*args, **kwargs)
        except KeelboltError as error:
            return refused(error)

    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(saving)
    # Python 3.11 has no marker; it reads this flag, which does not change how the function runs.
    code = saving.__code__  # type: ignore[attr-defined]
    saving.__code__ = code.replace(co_flags=code.co_flags | inspect.CO_COROUTINE)  # type: ignore[attr-defined]
    return saving


async def background_saves() -> None:
    """Wait for the tasks in which PenguiFlow's planners of this loop save events; PenguiFlow does not await them."""
    current = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("penguiflow-persist-")]
    if waiting := [task for task in tasks if task is not current]:
        await asyncio.wait(waiting)
