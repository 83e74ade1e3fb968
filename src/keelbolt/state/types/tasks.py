"""The tasks of a session, the context with which they were started, their updates, and steering events.

Steering events are controls that users and systems send to a running task.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from pydantic import BaseModel, Field


def utc_now() -> datetime:
    return datetime.now(UTC)


class UpdateType(str, Enum):  # noqa: UP042  (str() of a member must equal that of the specification's enums)
    """What a `StateUpdate` reports."""

    THINKING = "THINKING"
    PROGRESS = "PROGRESS"
    TOOL_CALL = "TOOL_CALL"
    RESULT = "RESULT"
    ERROR = "ERROR"
    CHECKPOINT = "CHECKPOINT"
    STATUS_CHANGE = "STATUS_CHANGE"
    NOTIFICATION = "NOTIFICATION"


class TaskStatus(str, Enum):  # noqa: UP042
    """Where a task stands; the last three are final."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class TaskType(str, Enum):  # noqa: UP042
    """Whether a task is the conversation itself, or runs beside it."""

    FOREGROUND = "FOREGROUND"
    BACKGROUND = "BACKGROUND"


class TaskContextSnapshot(BaseModel):
    """The context of a session as it was when the task was spawned.

    ``context_version`` and ``context_hash`` tell later whether the session has moved on meanwhile;
    ``propagate_on_cancel`` is "cascade" or "isolate".
    """

    session_id: str
    task_id: str
    trace_id: str | None = None
    spawned_from_task_id: str = "foreground"
    spawned_from_event_id: str | None = None
    spawned_at: datetime = Field(default_factory=utc_now)
    spawn_reason: str | None = None
    query: str | None = None
    propagate_on_cancel: str = "cascade"
    notify_on_complete: bool = True
    context_version: int | None = None
    context_hash: str | None = None
    llm_context: dict[str, Any] = Field(default_factory=dict)
    tool_context: dict[str, Any] = Field(default_factory=dict)
    memory: dict[str, Any] = Field(default_factory=dict)
    artifacts: list[dict[str, Any]] = Field(default_factory=list)


class StateUpdate(BaseModel):
    """Something that a task reports while it runs. A repeat of ``update_id`` in its session is the same update."""

    session_id: str
    task_id: str
    trace_id: str | None = None
    update_id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    update_type: UpdateType
    content: Any
    step_index: int | None = None
    total_steps: int | None = None
    created_at: datetime = Field(default_factory=utc_now)


@dataclass(slots=True)
class TaskState:
    """A task of a session."""

    task_id: str
    session_id: str
    status: TaskStatus
    task_type: TaskType
    priority: int
    context_snapshot: TaskContextSnapshot
    trace_id: str | None = None
    result: Any | None = None
    error: str | None = None
    description: str | None = None
    progress: dict[str, Any] | None = None
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)

    def update_status(self, status: TaskStatus) -> None:
        """Change the status and ``updated_at``."""
        self.status = status
        self.updated_at = utc_now()


class SteeringEventType(str, Enum):  # noqa: UP042
    """What is asked of the task."""

    INJECT_CONTEXT = "INJECT_CONTEXT"
    REDIRECT = "REDIRECT"
    CANCEL = "CANCEL"
    PRIORITIZE = "PRIORITIZE"
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    APPROVE = "APPROVE"
    REJECT = "REJECT"
    USER_MESSAGE = "USER_MESSAGE"


class SteeringEvent(BaseModel):
    """One such demand. A repeat of ``event_id`` in its session is the same demand."""

    session_id: str
    task_id: str
    event_id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    event_type: SteeringEventType
    payload: dict[str, Any] = Field(default_factory=dict)
    trace_id: str | None = None
    source: str = "user"
    created_at: datetime = Field(default_factory=utc_now)

    def to_injection(self) -> str:
        """Return the JSON that is shown to the model."""
        return json.dumps(
            {
                "steering": {
                    "event_id": self.event_id,
                    "task_id": self.task_id,
                    "event_type": self.event_type.value,
                    "payload": dict(self.payload),
                    "created_at": self.created_at.isoformat(),
                }
            },
            ensure_ascii=False,
        )
