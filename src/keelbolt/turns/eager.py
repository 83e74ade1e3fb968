"""Calls that have done their part before they are awaited, so that nothing is lost when nobody awaits them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any


class Done(Coroutine[Any, Any, None]):
    """What a call answers when there is nothing left to wait for. It may be awaited, gathered, or left alone."""

    __slots__ = ()

    def send(self, _value: Any, /) -> Any:
        raise StopIteration

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        _traceback: TracebackType | None = None,
        /,
    ) -> Any:
        raise value if isinstance(value, BaseException) else kind

    def close(self) -> None:
        pass

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


class Started(Coroutine[Any, Any, Any]):
    """What a call answers when the rest is waited for, here or later by whoever keeps track of it."""

    __slots__ = ("_finish", "_running")

    def __init__(self, finish: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._finish = finish
        self._running: Coroutine[Any, Any, Any] | None = None

    def send(self, value: Any, /) -> Any:
        if self._running is None:
            self._running = self._finish()
        return self._running.send(value)

    def throw(self, *error: Any) -> Any:
        if self._running is None:
            self._running = self._finish()
        return self._running.throw(*error)

    def close(self) -> None:
        if self._running is not None:
            self._running.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self._finish().__await__())
