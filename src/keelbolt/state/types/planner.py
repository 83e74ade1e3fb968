"""Events of a planner, and the results of its background tasks."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class PlannerEvent:
    """An event of a running planner.

    ``ts`` is the planner's clock, which is monotonic by default: it can't order events across processes.
    """

    event_type: str
    ts: float
    trajectory_step: int
    thought: str | None = None
    node_name: str | None = None
    latency_ms: float | None = None
    token_estimate: int | None = None
    error: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class BackgroundTaskResult:
    """The result of a background task; ``consumed``: the planner has seen it."""

    task_id: str
    group_id: str | None = None
    status: Literal["completed", "failed"] = "completed"
    summary: str | None = None
    payload: Any = None
    facts: dict[str, Any] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    consumed: bool = False
    completed_at: float = field(default_factory=time.time)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> BackgroundTaskResult | None:
        """Return the result that `to_payload` wrote; None without a task id."""
        task_id = payload.get("task_id")
        if not isinstance(task_id, str) or not task_id:
            return None
        summary, digest = payload.get("summary"), payload.get("digest")
        if summary is None and isinstance(digest, list):
            summary = " ".join(str(item) for item in digest if item)
        group_id, facts, artifacts = payload.get("group_id"), payload.get("facts"), payload.get("artifacts")
        completed_at = payload.get("completed_at")
        return cls(
            task_id=task_id,
            group_id=group_id if isinstance(group_id, str) else None,
            status="failed" if payload.get("status") == "failed" else "completed",
            summary=summary,
            payload=payload.get("payload"),
            facts=dict(facts) if isinstance(facts, Mapping) else {},
            artifacts=[dict(item) for item in artifacts if isinstance(item, Mapping)]
            if isinstance(artifacts, list)
            else [],
            consumed=bool(payload.get("consumed", False)),
            completed_at=float(completed_at) if isinstance(completed_at, int | float) else time.time(),
        )

    def to_payload(self) -> dict[str, Any]:
        """Return the result as a dictionary; a payload that is not JSON is omitted."""
        return {
            "task_id": self.task_id,
            "group_id": self.group_id,
            "status": self.status,
            "summary": self.summary,
            "payload": through_json(self.payload),
            "facts": dict(self.facts),
            "artifacts": [dict(item) for item in self.artifacts],
            "consumed": self.consumed,
            "completed_at": self.completed_at,
        }


def read_results(raw: Any) -> list[BackgroundTaskResult]:
    """Return results from any form in which they were ever stored: one, a list, or by task id."""
    if isinstance(raw, BackgroundTaskResult):
        items: list[Any] = [raw]
    elif isinstance(raw, Mapping):
        items = [raw] if "task_id" in raw else list(raw.values())
    else:
        items = raw if isinstance(raw, list) else []
    results = [item if isinstance(item, BackgroundTaskResult) else _result(item) for item in items]
    return [result for result in results if result is not None]


def _result(item: Any) -> BackgroundTaskResult | None:
    return BackgroundTaskResult.from_payload(item) if isinstance(item, Mapping) else None


def through_json(value: Any) -> Any:
    """Return a copy of the value, or None if it is not JSON."""
    try:
        return json.loads(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        return None
