"""Sample values of the classes that the store gets, and their fields for comparisons.

A store may return other classes than it got, as long as they have the same fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from keelbolt.state.classes import Types

PAYLOAD: dict[str, Any] = {
    "text": "grüße \U0001f427",
    "whole": 2**53 + 1,
    "real": 0.1,
    "no": False,
    "none": None,
    "empty": {"dict": {}, "list": [], "text": ""},
    "deep": [{"a": [{"b": [1, "2", None]}]}],
}


class Samples:
    """Makes sample values."""

    def __init__(self, types: Types) -> None:
        self.types = types

    def event(self, ts: float = 1.0, *, trace: str | None = "trace", node: str | None = "node", **more: Any) -> Any:
        fields = {"kind": "node_success", "node_id": "node-1", "payload": {"latency_ms": 100}}
        return self.types.StoredEvent(trace_id=trace, ts=ts, node_name=node, **{**fields, **more})

    def binding(self, *, trace: str = "trace", context: str | None = "context", task: str = "task", **more: Any) -> Any:
        fields = {"agent_url": "http://worker:8080"}
        return self.types.RemoteBinding(trace_id=trace, context_id=context, task_id=task, **{**fields, **more})

    def task(self, task: str = "task", *, session: str = "session", **more: Any) -> Any:
        snapshot = self.types.TaskContextSnapshot(
            session_id=session,
            task_id=task,
            context_version=1,
            context_hash="abc123",
            llm_context={"facts": ["a"]},
            tool_context={"tenant_id": "t"},
        )
        fields = {
            "status": self.types.TaskStatus.PENDING,
            "task_type": self.types.TaskType.BACKGROUND,
            "priority": 5,
            "context_snapshot": snapshot,
            "description": "a task",
        }
        return self.types.TaskState(task_id=task, session_id=session, **{**fields, **more})

    def update(self, number: int, *, task: str = "task", session: str = "session") -> Any:
        return self.types.StateUpdate(
            session_id=session,
            task_id=task,
            update_id=f"update-{number}",
            update_type=self.types.UpdateType.PROGRESS,
            content={"step": number},
        )

    def steering(
        self, number: int, *, task: str = "task", session: str = "session", payload: dict[str, Any] | None = None
    ) -> Any:
        return self.types.SteeringEvent(
            session_id=session,
            task_id=task,
            event_id=f"event-{number}",
            event_type=self.types.SteeringEventType.USER_MESSAGE,
            payload={"text": f"hello {number}"} if payload is None else payload,
        )

    def trajectory(self, query: str = "what?") -> Any:
        return self.types.Trajectory(query=query, llm_context={"known": [1]}, tool_context={"tenant_id": "t"})

    def planner_event(self, number: int, *, ts: float = 1.0, **extra: Any) -> Any:
        return self.types.PlannerEvent(
            event_type="stream_chunk", ts=ts, trajectory_step=number, thought=f"thought {number}", extra=extra
        )

    def scope(self, session: str | None = "session", *, tenant: str | None = "t", trace: str | None = None) -> Any:
        return self.types.ArtifactScope(tenant_id=tenant, user_id="u", session_id=session, trace_id=trace)


def seen(value: Any) -> Any:
    """The fields of a value of any class."""
    if isinstance(value, BaseModel):
        return {name: seen(getattr(value, name)) for name in type(value).model_fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: seen(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: seen(item) for key, item in value.items()}
    return value


def ids(values: Iterable[Any], name: str) -> list[Any]:
    """One field of each value."""
    return [getattr(value, name) for value in values]


def steps(updates: Sequence[Any]) -> list[int]:
    """The step numbers of updates."""
    return [update.content["step"] for update in updates]
