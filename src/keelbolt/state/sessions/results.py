"""The result and the argument of a task's pipeline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from keelbolt.state.sessions.inbox import SteeringInbox
from keelbolt.state.sessions.notifications import NotificationPayload
from keelbolt.state.sessions.patches import ContextPatch
from keelbolt.state.types.tasks import StateUpdate, TaskContextSnapshot, TaskState, UpdateType

if TYPE_CHECKING:
    from keelbolt.state.sessions.session import StreamingSession


@dataclass(slots=True)
class TaskResult:
    """The result of a pipeline. ``context_patch`` is merged into the session's context by the task's strategy."""

    payload: Any | None = None
    context_patch: ContextPatch | None = None
    digest: list[str] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    notification: NotificationPayload | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any) -> TaskResult:
        """Convert the return value of a pipeline: a result (also penguiflow's), or the payload alone."""
        if isinstance(value, cls):
            return value
        if type(value).__name__ == cls.__name__ and hasattr(value, "context_patch"):
            return cls(**{each.name: getattr(value, each.name) for each in fields(cls)})
        return cls(payload=value)


class TaskRuntime:
    """The argument of a pipeline: its task, its context snapshot, its inbox, and methods for reporting."""

    def __init__(self, *, session: StreamingSession, state: TaskState, steering: SteeringInbox) -> None:
        self.session = session
        self.state = state
        self.steering = steering
        self.context_snapshot: TaskContextSnapshot = state.context_snapshot

    def emit_update(
        self, update_type: UpdateType, content: Any, *, step_index: int | None = None, total_steps: int | None = None
    ) -> StateUpdate:
        """Publish an update. A PROGRESS whose content is a dictionary also becomes the task's progress."""
        return self.session.report(self.state, update_type, content, step_index=step_index, total_steps=total_steps)

    def notify(self, payload: NotificationPayload) -> None:
        """Publish a notification for the user."""
        self.emit_update(UpdateType.NOTIFICATION, payload.model_dump(mode="json"))


TaskPipeline = Callable[[TaskRuntime], Awaitable[Any]]
