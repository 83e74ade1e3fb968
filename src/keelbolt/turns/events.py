"""The events of the buses.

The functional bus (`on`): ``message`` and ``thought`` (`TextReport`), ``tool_call`` (`ToolCallReport`).

The observability bus (`observe`): everything else. ``turn_gate_open`` carries the live gate, ``error`` the exception,
and ``stored_message``, ``mutated_memory``, ``deleted_tool_call``, … the value, or the id of the deleted value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, get_args

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
