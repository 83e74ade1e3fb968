"""Cooperative aborts: an abort is requested through a signal, and code that checks the signal stops by itself.

To interrupt a turn instead, cancel the asyncio task that runs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from keelbolt.errors import TurnAborted, TurnGateAborted

_log = logging.getLogger(__name__)


class AbortSignal:
    """Reports whether an abort was requested, and its reason. It is never reset."""

    __slots__ = ("_aborted", "_listeners", "_reason")

    def __init__(self) -> None:
        self._aborted = False
        self._reason: object = None
        self._listeners: dict[object, Callable[[object], None]] = {}

    @property
    def aborted(self) -> bool:
        return self._aborted

    @property
    def reason(self) -> object:
        return self._reason

    def on_abort(self, listener: Callable[[object], None]) -> Callable[[], None]:
        """Call the listener with the reason, at once if already aborted. Return a function that removes it."""
        if self._aborted:
            _tell(listener, self._reason)
            return lambda: None
        key = object()
        self._listeners[key] = listener

        def forget() -> None:
            self._listeners.pop(key, None)

        return forget

    def raise_if_aborted(self) -> None:
        if self._aborted:
            raise aborted(self._reason)

    async def wait(self) -> object:
        """Wait for the abort; return its reason."""
        if self._aborted:
            return self._reason
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        forget = self.on_abort(lambda _reason: _set(loop, asked))
        try:
            await asked.wait()
        finally:
            forget()
        return self._reason

    def _abort(self, reason: object) -> None:
        if self._aborted:
            return
        self._aborted, self._reason = True, reason
        listeners, self._listeners = list(self._listeners.values()), {}
        for listener in listeners:
            _tell(listener, reason)


class AbortController:
    """Requests an abort, from any thread. The first reason stays."""

    __slots__ = ("signal",)

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: object = None) -> None:
        self.signal._abort(reason)  # noqa: SLF001 - the controller is the writing side of its signal


def linked(parent: AbortSignal) -> tuple[AbortController, Callable[[], None]]:
    """Return a controller that also aborts with its parent, for the same reason, and a function that unlinks them."""
    child = AbortController()
    return child, parent.on_abort(child.abort)


def aborted(reason: object) -> TurnAborted:
    """Return the error for an abort with this reason."""
    words = None if reason is None else f"the turn was aborted: {reason}"
    return TurnAborted(words, cause=reason if isinstance(reason, BaseException) else None)


def is_abort(error: BaseException, signal: AbortSignal) -> bool:
    """Return whether an abort caused this error; a gate that was aborted with its turn counts too."""
    return isinstance(error, TurnAborted) or (signal.aborted and isinstance(error, TurnGateAborted))


def ends_task(error: BaseException) -> bool:
    """Return whether the error must propagate because it ends this task: its cancellation, or the end of the program.

    A CancelledError while this task is not being cancelled comes from an awaited task and is an ordinary failure.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return not isinstance(error, Exception)


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    loop.call_soon_threadsafe(event.set)


def _tell(listener: Callable[[object], None], reason: object) -> None:
    try:
        listener(reason)
    except Exception:  # noqa: BLE001
        _log.exception("a listener of an abort raised; the abort continues")
