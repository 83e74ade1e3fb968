"""The inbox of a running task: controls that the task has not processed yet."""

from __future__ import annotations

import asyncio

from keelbolt.state.types.steering import SteeringEvent, SteeringEventType

MAX_USER_MESSAGES = 2


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
