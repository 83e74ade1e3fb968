"""The events of the buses, and their listeners.

The functional bus (`on`): ``message`` and ``thought`` (`TextReport`), ``tool_call`` (`ToolCallReport`).

The observability bus (`observe`): everything else. ``turn_gate_open`` carries the live gate, ``error`` the exception,
and ``stored_message``, ``mutated_memory``, ``deleted_tool_call``, … the value, or the id of the deleted value.

A plain listener is called at the event, in registration order; an async one is started then and awaited before
``turn_end``. Exceptions of listeners are logged and do not affect the turn.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, get_args

from keelbolt.names import suggestion

Kind = Literal["message", "memory", "thought", "tool_call", "retrievable", "standing_instruction"]
Op = Literal["store", "mutate", "delete"]
Status = Literal["ack", "nack", "aborted"]
GateResult = Literal["resolved", "rejected", "aborted", "timeout"]
Level = Literal["trace", "debug", "info", "warn", "error"]

KINDS: tuple[Kind, ...] = get_args(Kind)
OPS: tuple[Op, ...] = get_args(Op)
PAST: Mapping[Op, str] = {"store": "stored", "mutate": "mutated", "delete": "deleted"}

FUNCTIONAL = frozenset({"message", "thought", "tool_call"})
EMITS = FUNCTIONAL | {"tool_execution_start", "tool_execution_end"}
WRITTEN = frozenset(f"{past}_{kind}" for past in PAST.values() for kind in KINDS)
OBSERVED = WRITTEN | {
    "turn_start",
    "turn_end",
    "turn_gate_open",
    "turn_gate_closed",
    "tool_execution_start",
    "tool_execution_end",
    "dispatch_start",
    "dispatch_end",
    "iteration_start",
    "iteration_end",
    "generation_stats",
    "log",
    "warning",
    "error",
}
EVENTS = FUNCTIONAL | OBSERVED


def now() -> datetime:
    return datetime.now(UTC)


def milliseconds(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds() * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReport:
    """A growing message or thought: ``delta`` is the new text, ``full`` the whole text so far."""

    id: str
    created_at: datetime
    updated_at: datetime
    full: str
    delta: str
    is_complete: bool
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallReport:
    """The known state of a tool call; ``checksum`` is set once tool and arguments are known."""

    id: str
    tool: str | None
    args: Mapping[str, Any] | None
    checksum: str | None
    results: Any
    is_error: bool
    is_complete: bool
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart:
    turn_id: str
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    turn_id: str
    started_at: datetime
    ended_at: datetime
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnGateClosed:
    gate_id: str
    turn_id: str
    result: GateResult
    settled_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionStart:
    tool_name: str
    turn_id: str
    dispatch_id: str | None
    call_id: str
    args: Any
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionEnd:
    tool_name: str
    turn_id: str
    dispatch_id: str | None
    call_id: str
    started_at: datetime
    ended_at: datetime
    duration_ms: float
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchStart:
    dispatch_id: str
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchEnd:
    """``iterations`` counts started iterations; ``error`` is the same object that was nacked or raised."""

    dispatch_id: str
    status: Status
    error: BaseException | None
    iterations: int
    started_at: datetime
    ended_at: datetime
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationStart:
    dispatch_id: str
    iteration: int
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationEnd:
    dispatch_id: str
    iteration: int
    started_at: datetime
    ended_at: datetime
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    dispatch_id: str
    iteration: int
    emitted_at: datetime
    level: Level
    kind: str
    message: str
    payload: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStats:
    dispatch_id: str
    iteration: int
    emitted_at: datetime
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnWarning:
    """A condition that needs attention, but no failure: ``kind`` is for programs, ``message`` for people."""

    kind: str
    message: str
    emitted_at: datetime


# ---------------------------------------------------------------------------------------------------------------- buses


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
        listeners = [listener for listener, _once in found]
        self._listeners[name] = [entry for entry in found if not entry[1]]
        return listeners

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
