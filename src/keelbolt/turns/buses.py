"""Event listeners of turns.

A plain listener is called at the event, in registration order; an async one is started then and awaited before
``turn_end``. Exceptions of listeners are logged and do not affect the turn.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from keelbolt.names import suggestion
from keelbolt.turns.events import EVENTS, TurnWarning, now

Listener: TypeAlias = Callable[[Any], Any]

_log = logging.getLogger(__name__)


class Bus:
    """Listeners by event name."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: dict[str, list[tuple[Listener, bool]]] = {}

    def add(self, name: str, listener: Listener, *, once: bool = False) -> Callable[[], None]:
        """Add a listener for these events; return a function that removes it."""
        if name not in EVENTS:
            raise ValueError(f"unknown event {name!r}{suggestion(name, EVENTS)}")
        if not callable(listener):
            raise TypeError(f"a listener must be a function of one argument, not {type(listener).__name__}")
        entry = (listener, once)
        self._listeners.setdefault(name, []).append(entry)
        return lambda: self._drop(name, entry)

    def remove(self, name: str, listener: Listener) -> None:
        """Remove the listener."""
        for entry in list(self._listeners.get(name, ())):
            if entry[0] == listener:
                self._drop(name, entry)

    def take(self, name: str) -> list[Listener]:
        """Return the current listeners; those registered with ``once`` are removed."""
        found = self._listeners.get(name)
        if not found:
            return []
        told = [listener for listener, _once in found]
        self._listeners[name] = [entry for entry in found if not entry[1]]
        return told

    def _drop(self, name: str, entry: tuple[Listener, bool]) -> None:
        self._listeners[name] = [held for held in self._listeners.get(name, []) if held is not entry]


class Emitter:
    """Calls the listeners of one turn, and tracks the async ones that still run."""

    __slots__ = ("_bus", "_hooks", "_loop", "_thread", "_timeout", "_working")

    def __init__(
        self,
        bus: Bus | None = None,
        *,
        hooks: Mapping[str, Listener] | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        self._bus = bus or Bus()
        self._hooks = hooks or {}
        self._timeout = timeout_seconds
        self._working: set[asyncio.Task[None]] = set()
        self._thread = threading.get_ident()
        self._loop = _running_loop()

    def emit(self, name: str, payload: Any) -> None:
        """Call the listeners of this event on the turn's event loop: plain tools emit from other threads."""
        if self._loop is not None and threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.emit, name, payload)
            return
        if name in self._hooks:
            self._tell(name, self._hooks[name], payload)
        for listener in self._bus.take(name):
            self._tell(name, listener, payload)

    def warn(self, kind: str, message: str) -> None:
        _log.warning(message)
        self.emit("warning", TurnWarning(kind=kind, message=message, emitted_at=now()))

    async def drain(self) -> None:
        """Wait for the async listeners; cancel those that take longer than the timeout."""
        while self._working:
            try:
                _done, late = await asyncio.wait(self._working, timeout=self._timeout)
            except asyncio.CancelledError:
                for task in self._working:
                    task.cancel()
                raise
            for task in late:
                _log.warning("an async listener timed out and was cancelled")
                task.cancel()
            self._working -= late

    def _tell(self, name: str, listener: Listener, payload: Any) -> None:
        try:
            answer = listener(payload)
        except Exception:  # noqa: BLE001
            _log.exception("a listener of %r raised; the turn continues", name)
            return
        if inspect.isawaitable(answer):
            task = asyncio.ensure_future(_finish(name, answer))
            self._working.add(task)
            task.add_done_callback(self._working.discard)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _finish(name: str, answer: Awaitable[Any]) -> None:
    try:
        await answer
    except Exception:  # noqa: BLE001
        _log.exception("an async listener of %r raised; the turn continues", name)
