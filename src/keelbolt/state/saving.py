"""The result of a ``save_*`` call. The call itself hands the write over; awaiting the result waits for the commit.

Callers can treat it as a coroutine (`asyncio.create_task` accepts it), but need not await it: a write is saved in the
order of the calls also when the caller never awaits it.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec

from keelbolt.errors import KeelboltError

P = ParamSpec("P")


class Saved(Coroutine[Any, Any, None]):
    """Already done: awaiting it does not suspend."""

    def __await__(self) -> Generator[Any, Any, None]:
        return iter(())  # type: ignore[return-value]  # an empty iterator is the cheapest thing to await

    def send(self, _value: Any) -> Any:
        raise StopIteration

    def throw(self, kind: Any, value: BaseException | object = None, at: TracebackType | None = None) -> Any:  # noqa: ARG002
        raise value if isinstance(value, BaseException) else kind

    def close(self) -> None:
        pass


class Outcome(Future[None]):
    """Set when the write is committed, spooled or lost. ``heard``: a caller awaits it."""

    heard = False


class Saving(Saved):
    """Done when the outcome is set."""

    def __init__(self, future: Outcome) -> None:
        self._future = future
        self._steps: Coroutine[Any, Any, None] | None = None

    def __await__(self) -> Generator[Any, Any, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        self._future.heard = True
        if not self._future.done():
            await asyncio.wrap_future(self._future)
        self._future.result()

    def send(self, value: Any) -> Any:
        if self._steps is None:
            self._steps = self._wait()
        return self._steps.send(value)

    def throw(self, kind: Any, value: BaseException | object = None, at: TracebackType | None = None) -> Any:
        if self._steps is None:
            return super().throw(kind, value, at)
        return self._steps.throw(value if isinstance(value, BaseException) else kind)

    def close(self) -> None:
        if self._steps is not None:
            self._steps.close()


SAVED = Saved()


def outcome() -> Outcome:
    """An outcome that a waiting caller can't cancel: the write goes on."""
    future = Outcome()
    future.set_running_or_notify_cancel()
    return future


def refused(error: BaseException) -> Saving:
    """A save that failed before it was handed over."""
    future = outcome()
    future.set_exception(error)
    return Saving(future)


def handed_over(save: Callable[P, Saved]) -> Callable[P, Saved]:
    """Make a ``save_*`` look like a coroutine function: `inspect.iscoroutinefunction` and `AsyncMock` recognise it.

    An error of the call is raised where the result is awaited, as a coroutine function does.
    """

    @wraps(save)
    def saving(*args: P.args, **kwargs: P.kwargs) -> Saved:
        try:
            return save(*args, **kwargs)
        except KeelboltError as error:
            return refused(error)

    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(saving)
    # Python 3.11 has no mark; it reads this flag, which does not change how the function runs.
    code = saving.__code__  # type: ignore[attr-defined]
    saving.__code__ = code.replace(co_flags=code.co_flags | inspect.CO_COROUTINE)  # type: ignore[attr-defined]
    return saving
