"""What a task's pipeline gives back, and what it is given."""

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
    """The outcome of a pipeline. A ``context_patch`` gets into the session's context as the task's strategy says."""

    payload: Any | None = None
    context_patch: ContextPatch | None = None
    digest: list[str] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    notification: NotificationPayload | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any) -> TaskResult:
        """Whatever a pipeline returned: a result (penguiflow's is one too), or the payload alone."""
        if isinstance(value, cls):
            return value
        if type(value).__name__ == cls.__name__ and hasattr(value, "context_patch"):
            return cls(**{each.name: getattr(value, each.name) for each in fields(cls)})
        return cls(payload=value)


class TaskRuntime:
    """What a pipeline works with: its task, its snapshot of the context, its inbox, and a way to report."""

    def __init__(self, *, session: StreamingSession, state: TaskState, steering: SteeringInbox) -> None:
        self.session = session
        self.state = state
        self.steering = steering
        self.context_snapshot: TaskContextSnapshot = state.context_snapshot

    def emit_update(
        self, update_type: UpdateType, content: Any, *, step_index: int | None = None, total_steps: int | None = None
    ) -> StateUpdate:
        """Report something. A PROGRESS whose content is a dictionary becomes the task's progress too."""
        return self.session.report(self.state, update_type, content, step_index=step_index, total_steps=total_steps)

    def notify(self, payload: NotificationPayload) -> None:
        """Tell the user something."""
        self.emit_update(UpdateType.NOTIFICATION, payload.model_dump(mode="json"))


TaskPipeline = Callable[[TaskRuntime], Awaitable[Any]]
