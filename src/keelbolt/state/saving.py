"""What a ``save_*`` answers. Its work was handed over when it was called; awaiting it only waits.

It is a coroutine in all that a caller can see (`asyncio.create_task` takes it), but nobody has to await it: what was
called is saved, in the order of the calls, by a program that never comes back to it.
"""

from __future__ import annotations

import asyncio
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


class Saving(Saved):
    """Done when the future is."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future
        self._steps: Coroutine[Any, Any, None] | None = None

    def __await__(self) -> Generator[Any, Any, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
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


def outcome() -> Future[None]:
    """A future that whoever waits for it can't cancel: the work goes on."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


def refused(error: BaseException) -> Saving:
    """A save that was not even tried."""
    future = outcome()
    future.set_exception(error)
    return Saving(future)


def handed_over(save: Callable[P, Saved]) -> Callable[P, Saved]:
    """What a save refuses is raised where it is awaited, not where it is called: a caller may be in the middle of
    something else.
    """

    @wraps(save)
    def saving(*args: P.args, **kwargs: P.kwargs) -> Saved:
        try:
            return save(*args, **kwargs)
        except KeelboltError as error:
            return refused(error)

    return saving
