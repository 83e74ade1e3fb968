"""Results of calls that do their work when they are called. Awaiting the result is optional."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any


class FinishedCall(Coroutine[Any, Any, None]):
    """The result of a finished call: awaiting it does not suspend."""

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
        return iter(())  # type: ignore[return-value]  # an empty iterator is the cheapest awaitable


class Started(Coroutine[Any, Any, Any]):
    """The result of a call whose remaining work runs when it is awaited."""

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
