"""Sample data to store."""

from __future__ import annotations

from typing import Any

from keelbolt.state import (
    PlannerEvent,
    RemoteBinding,
    StateUpdate,
    SteeringEvent,
    SteeringEventType,
    StoredEvent,
    TaskContextSnapshot,
    TaskState,
    TaskStatus,
    TaskType,
    Trajectory,
    UpdateType,
)


def event(ts: float = 1.0, trace: str | None = "trace", kind: str = "node_start", **payload: Any) -> StoredEvent:
    return StoredEvent(trace, ts, kind, "node", "node_1", payload)


def task(number: int = 1, session: str = "session", **fields: Any) -> TaskState:
    name = f"task-{number}"
    snapshot = TaskContextSnapshot(
        session_id=session, task_id=name, context_version=3, context_hash="abc", llm_context={"deep": [{"x": 1}]}
    )
    return TaskState(
        **{
            "task_id": name,
            "session_id": session,
            "status": TaskStatus.RUNNING,
            "task_type": TaskType.BACKGROUND,
            "priority": 5,
            "context_snapshot": snapshot,
            **fields,
        }
    )


def update(number: int, task_id: str = "task-1", session: str = "session") -> StateUpdate:
    return StateUpdate(
        session_id=session,
        task_id=task_id,
        update_id=f"update-{number}",
        update_type=UpdateType.PROGRESS,
        content={"step": number},
    )


def steering(number: int, task_id: str = "task-1", session: str = "session", **payload: Any) -> SteeringEvent:
    return SteeringEvent(
        session_id=session,
        task_id=task_id,
        event_id=f"event-{number}",
        event_type=SteeringEventType.USER_MESSAGE,
        payload=payload or {"text": "hello"},
    )


def binding(**fields: Any) -> RemoteBinding:
    return RemoteBinding(
        **{"trace_id": "trace", "context_id": "context", "task_id": "task", "agent_url": "https://agent", **fields}
    )


def conversation(task_id: str, **fields: Any) -> RemoteBinding:
    """Return a binding that accepts a next turn."""
    return binding(task_id=task_id, router_session_id="session", remote_skill="skill", **fields)


def planned(number: int, **extra: Any) -> PlannerEvent:
    return PlannerEvent("step_complete", ts=100.0 - number, trajectory_step=number, extra=extra)


def trajectory(query: str = "query") -> Trajectory:
    return Trajectory(
        query=query, llm_context={"l": 1}, tool_context={"t": 1}, metadata={"n": 1}, sources=[{"title": "s"}]
    )
