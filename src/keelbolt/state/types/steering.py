"""Steering events: controls that users and systems send to a running task."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from enum import Enum
from typing import Any

from pydantic import BaseModel, Field

from keelbolt.state.types.tasks import utc_now


class SteeringEventType(str, Enum):  # noqa: UP042  (as in tasks.py)
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
