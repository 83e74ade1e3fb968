"""Functions with which executors report output. Reports are events and are not stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from keelbolt.errors import ReportAfterCompletion
from keelbolt.turns.dispatch_context import DispatchContext
from keelbolt.turns.events import Emitter, GenerationStats, Level, LogEntry, TextReport, ToolCallReport, now
from keelbolt.turns.primitives import tool_call_checksum


class ExecutorHelpers:
    """Helpers of one dispatch, so that a text may grow over several iterations."""

    __slots__ = ("_calls", "_ctx", "_emitter", "_messages", "_thoughts", "log")

    def __init__(self, ctx: DispatchContext, emitter: Emitter) -> None:
        self._ctx = ctx
        self._emitter = emitter
        self._messages: dict[str, TextReport] = {}
        self._thoughts: dict[str, TextReport] = {}
        self._calls: dict[str, ToolCallReport] = {}
        self.log = Log(ctx, emitter)

    def report_message(self, id: str, delta: str, *, is_complete: bool = False) -> TextReport:  # noqa: A002
        """Report the next piece of this message; ``is_complete`` marks the last one."""
        report = _grown(self._messages, "message", id, delta, is_complete=is_complete)
        self._ctx.emit_message(report)
        return report

    def report_thought(self, id: str, delta: str, *, is_complete: bool = False) -> TextReport:  # noqa: A002
        """Report the next piece of this thought; ``is_complete`` marks the last one."""
        report = _grown(self._thoughts, "thought", id, delta, is_complete=is_complete)
        self._ctx.emit_thought(report)
        return report

    def report_tool_call(
        self,
        id: str,  # noqa: A002
        *,
        tool: str | None = None,
        args: Mapping[str, Any] | None = None,
        results: Any = None,
        is_error: bool | None = None,
        is_complete: bool = False,
    ) -> ToolCallReport:
        """Report new data of this call; it is merged with the earlier reports."""
        before = self._calls.get(id)
        if before is not None and before.is_complete:
            raise ReportAfterCompletion(f"the tool call {id} is already reported complete; use another id")
        moment = now()
        known = before or ToolCallReport(
            id=id,
            tool=None,
            args=None,
            checksum=None,
            results=None,
            is_error=False,
            is_complete=False,
            created_at=moment,
            updated_at=moment,
        )
        named = tool if tool is not None else known.tool
        given = args if args is not None else known.args
        same = known.checksum if tool is None and args is None else None
        if same is None and named is not None and given is not None:
            same = tool_call_checksum(named, given)
        report = replace(
            known,
            tool=named,
            args=given,
            checksum=same,
            results=results if results is not None else known.results,
            is_error=known.is_error if is_error is None else is_error,
            is_complete=is_complete,
            updated_at=moment,
            completed_at=moment if is_complete else None,
        )
        self._calls[id] = report
        self._ctx.emit_tool_call(report)
        return report

    def report_generation_stats(self, **stats: Any) -> None:
        """Report the usage of a generation, such as tokens and seconds, as the provider gives it."""
        about = GenerationStats(
            dispatch_id=self._ctx.dispatch_id, iteration=self._ctx.iteration, emitted_at=now(), stats=stats
        )
        self._emitter.emit("generation_stats", about)


@dataclass(frozen=True, slots=True)
class Log:
    """Emits log events: ``kind`` is for programs, ``message`` for people."""

    _ctx: DispatchContext
    _emitter: Emitter

    def trace(self, kind: str, message: str, payload: Any = None) -> None:
        self._tell("trace", kind, message, payload)

    def debug(self, kind: str, message: str, payload: Any = None) -> None:
        self._tell("debug", kind, message, payload)

    def info(self, kind: str, message: str, payload: Any = None) -> None:
        self._tell("info", kind, message, payload)

    def warn(self, kind: str, message: str, payload: Any = None) -> None:
        self._tell("warn", kind, message, payload)

    def error(self, kind: str, message: str, payload: Any = None) -> None:
        self._tell("error", kind, message, payload)

    def _tell(self, level: Level, kind: str, message: str, payload: Any) -> None:
        entry = LogEntry(
            dispatch_id=self._ctx.dispatch_id,
            iteration=self._ctx.iteration,
            emitted_at=now(),
            level=level,
            kind=kind,
            message=message,
            payload=payload,
        )
        self._emitter.emit("log", entry)


def _grown(reports: dict[str, TextReport], what: str, id: str, delta: str, *, is_complete: bool) -> TextReport:  # noqa: A002
    before = reports.get(id)
    if before is not None and before.is_complete:
        raise ReportAfterCompletion(f"the {what} {id} is already reported complete; use another id")
    moment = now()
    reports[id] = TextReport(
        id=id,
        created_at=before.created_at if before else moment,
        updated_at=moment,
        full=(before.full if before else "") + delta,
        delta=delta,
        is_complete=is_complete,
        completed_at=moment if is_complete else None,
    )
    return reports[id]
