"""The interface of a pipeline: its argument with its inbox, its result, and notifications for users."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from keelbolt.state.sessions.context import ContextPatch
from keelbolt.state.types.tasks import (
    StateUpdate,
    SteeringEvent,
    SteeringEventType,
    TaskContextSnapshot,
    TaskState,
    UpdateType,
)

if TYPE_CHECKING:
    from keelbolt.state.sessions.session import StreamingSession

MAX_USER_MESSAGES = 2
Severity = Literal["info", "warning", "error"]


class SteeringInbox:
    """Controls for one task, in order. CANCEL, PAUSE and RESUME take effect at once, also if the inbox is full.

    A pipeline checks `cancelled`, waits in `wait_if_paused`, and reads the rest with `drain` or `next`.
    """

    def __init__(self, *, maxsize: int = 200, max_pending_user_messages: int = MAX_USER_MESSAGES) -> None:
        self._queue: asyncio.Queue[SteeringEvent] = asyncio.Queue(maxsize)
        self._max_user_messages = max_pending_user_messages
        self._user_messages = 0
        self._cancelled = asyncio.Event()
        self._running = asyncio.Event()
        self._running.set()
        self._reason: str | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the task was cancelled."""
        return self._cancelled.is_set()

    @property
    def cancel_reason(self) -> str | None:
        """The reason of the cancel."""
        return self._reason

    @property
    def cancel_event(self) -> asyncio.Event:
        """Set when the task is cancelled."""
        return self._cancelled

    async def push(self, event: SteeringEvent) -> bool:
        """Add a control; return False if the inbox has no room for it."""
        return self.put(event)

    def put(self, event: SteeringEvent) -> bool:
        """`push` for synchronous callers."""
        if event.event_type == SteeringEventType.CANCEL:
            self._reason = str(event.payload.get("reason") or "cancelled")
            self._cancelled.set()
            self._running.set()  # wakes a paused task, so that it sees the cancel
        elif event.event_type == SteeringEventType.PAUSE:
            self._running.clear()
        elif event.event_type == SteeringEventType.RESUME:
            self._running.set()
        spoken = event.event_type == SteeringEventType.USER_MESSAGE
        if self._queue.full() or (spoken and self._user_messages >= self._max_user_messages):
            return False
        self._user_messages += spoken
        self._queue.put_nowait(event)
        return True

    def has_event(self) -> bool:
        """Return whether the inbox has controls."""
        return not self._queue.empty()

    def drain(self) -> list[SteeringEvent]:
        """Return all controls in the inbox, without waiting."""
        events = []
        while not self._queue.empty():
            events.append(self._taken(self._queue.get_nowait()))
        return events

    async def next(self) -> SteeringEvent:
        """Wait for the next control and return it."""
        return self._taken(await self._queue.get())

    async def wait_if_paused(self) -> None:
        """Return at once if the task is not paused; otherwise wait until it is resumed or cancelled."""
        await self._running.wait()

    def _taken(self, event: SteeringEvent) -> SteeringEvent:
        self._user_messages -= event.event_type == SteeringEventType.USER_MESSAGE
        return event


class NotificationAction(BaseModel):
    """A button: ``payload`` comes back to the caller when it is pressed."""

    id: str
    label: str
    payload: dict[str, Any] = Field(default_factory=dict)


class NotificationPayload(BaseModel):
    """A message for the user."""

    severity: Severity = "info"
    title: str
    body: str
    actions: list[NotificationAction] = Field(default_factory=list)


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
