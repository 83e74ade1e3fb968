"""Streams that continue after a broken connection, without lost or repeated events.

If the agent's events have ids (its card declares the resume extension), a stream continues after the last received
event. Other agents also get the last id, if they sent one. Unless such an agent continues with exactly the next number,
the stream continues with the current task as a *snapshot*, and ends with another snapshot, which corrects events that
were lost or repeated in between. If an agent does not resume streams at all, the client polls the task until it is
terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass

from keelbolt.client.events import Event
from keelbolt.client.transport import StreamFrame, StreamHints
from keelbolt.errors import (
    A2AConnectionError,
    A2AResponseError,
    A2AServerError,
    BusyError,
    InvalidParamsError,
    KeelboltError,
    MethodNotFoundError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from keelbolt.protocol.requests import StreamEvent
from keelbolt.protocol.types import Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from keelbolt.protocol.versions import ProtocolVersion

logger = logging.getLogger("keelbolt.client")

Frames = AbstractAsyncContextManager[AsyncGenerator[StreamFrame, None]]

POLL_SECONDS = 2.0  # longest delay between two polls
END_SECONDS = 0.1  # longest wait for the end of a response after the last event

REFUSED = (A2AServerError, InvalidParamsError, MethodNotFoundError, TaskNotFoundError, UnsupportedOperationError)
"""Errors by which agents refuse a subscription: the task is terminal, or they have no subscriptions."""


class TaskStream:
    """Follows one task until it is terminal or waits for its user.

    ``send`` opens the stream by sending the message (None: it starts with a subscription). ``subscribe`` continues
    after an id; it returns None if the agent has no reliable subscriptions. ``get`` loads the task. ``resumes``: the
    agent sends ids. ``again``: a message may be sent twice.
    """

    def __init__(
        self,
        *,
        send: Callable[[StreamHints], Awaitable[Frames]] | None,
        subscribe: Callable[[str, str | None, StreamHints], Awaitable[Frames | None]],
        get: Callable[[str], Awaitable[Task]],
        resumes: bool,
        again: bool,
        backoff: Backoff,
        tell: Callable[[Reconnect], None] | None = None,
        task_id: str | None = None,
        after: str | None = None,
    ) -> None:
        self._send = send
        self._subscribe = subscribe
        self._get = get
        self._resumes = resumes
        self._again = again
        self._backoff = backoff
        self._tell = tell
        self.task_id = task_id
        self.last_id = after
        self._state: TaskState | None = None
        self._lossy = False  # events may be lost or repeated: end with a snapshot
        self._complete = False
        self._terminal = False  # the agent returned the task as terminal
        self._shown: object = None
        self._connections = 0
        self._hints = StreamHints()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield every event once. Raise the agent's error, or A2AConnectionError after too long an outage."""
        while True:
            cause: Exception
            try:
                async with aclosing(self._connection()) as events:
                    async for event in events:
                        self._note_progress(event)
                        yield event
                        if event.last:
                            await _read_to_end(events)
                            return
            except (A2AConnectionError, BusyError) as error:
                if self.task_id is None and not self._may_send_again(error):
                    raise
                cause = error
            else:
                if self._complete or (self._state is not None and self._state.paused):
                    return
                if self.task_id is None and not self._again:
                    raise A2AResponseError("the agent ended the stream without an event")
                cause = A2AConnectionError("the agent ended the stream before the task ended")
            await self._pause(cause)

    def _note_progress(self, event: Event) -> None:
        """Reset the backoff, unless the event is a snapshot without changes."""
        if not event.snapshot:
            self._backoff.progress()
        elif event.value != self._shown:
            if self._shown is not None:
                self._backoff.progress()
            self._shown = event.value

    def _may_send_again(self, error: Exception) -> bool:
        if isinstance(error, BusyError) or not getattr(error, "sent", True):
            self._connections = 0  # the agent did not accept the message: the next connection is the first
            return True
        return self._again

    async def _pause(self, cause: Exception) -> None:
        at_least = max(self._hints.retry_seconds, float(getattr(cause, "retry_after", 0)))
        seconds = self._backoff.next(at_least)
        if seconds is None:
            raise cause
        level = logging.WARNING if self._tell is None else logging.INFO  # the callback reports it
        logger.log(level, "a stream broke (%s); reconnecting in %.1f seconds", cause, seconds)
        if self._tell is not None:
            self._tell(Reconnect(cause, self._backoff.attempt, seconds, self.task_id))
        await asyncio.sleep(seconds)

    async def _connection(self) -> AsyncGenerator[Event, None]:
        """Yield the events of one connection."""
        first_connection = self._connections == 0
        self._connections += 1
        self._hints = StreamHints()
        sends = self.task_id is None
        opening: Frames | None
        if self.task_id is None:
            assert self._send is not None
            opening = await self._send(self._hints)
        else:
            opening = await self._subscribe(self.task_id, self.last_id, self._hints)
        if opening is None:
            async with aclosing(self._polled(None)) as several:
                async for event in several:
                    yield event
            return
        refusal: KeelboltError | None = None
        first = True
        try:
            async with opening as frames:
                async for frame in frames:
                    if first and not sends:
                        passed = self._begun(frame)
                    else:
                        answers = sends and first_connection and first  # the response to the message: the initial task
                        passed = self._passed(frame, snapshot=not answers, first=first)
                    async with aclosing(passed) as several:
                        async for event in several:
                            yield event
                    first = False
        except REFUSED as error:
            if sends or not first or not _is_refusal(error, self.last_id if first_connection else None):
                raise
            refusal = error
        except A2AConnectionError as error:
            # The official 0.3 server breaks the connection of a subscription to a terminal task.
            if sends or not first or not error.sent or self._resumes or not await self._is_over():
                raise
        if not first or sends:
            return
        if self._resumes and self.last_id is not None and refusal is None:
            if self._terminal:
                self._complete = True
            elif await self._is_over():  # maybe after this subscription ended: the next one then has the last events
                self._terminal = True
                async with aclosing(self._connection()) as several:
                    async for event in several:
                        yield event
            return
        async with aclosing(self._polled(refusal)) as several:
            async for event in several:
                yield event

    async def _begun(self, frame: StreamFrame) -> AsyncGenerator[Event, None]:
        """Handle the first frame of a subscription: the next event or the task; after a gap, load the task."""
        assert self.task_id is not None
        gap = (not self._resumes or frame.id is None) and not _follows(self.last_id, frame)
        self._lossy = self._lossy or gap
        task: Task | None = None
        if gap and not isinstance(frame.value, Task | Message):
            try:
                task = await self._get(self.task_id)
            except REFUSED as error:
                logger.warning("task %s can't be loaded: %s", self.task_id, error)
        if task is None:
            async with aclosing(self._passed(frame, snapshot=True, first=True)) as several:
                async for event in several:
                    yield event
            return
        yield self._event(StreamFrame(task), snapshot=True)
        if not task.status.state.terminal and not _shows(task, frame):
            async with aclosing(self._passed(frame, snapshot=True, first=False)) as several:
                async for event in several:
                    yield event

    async def _passed(self, frame: StreamFrame, *, snapshot: bool, first: bool) -> AsyncGenerator[Event, None]:
        """Yield the event of a frame, unless it is a repeat. The last event of a lossy stream is a snapshot."""
        whole = isinstance(frame.value, Task)
        if self._resumes and frame.id is not None:
            number = _number(frame.id)
            # A task at the start of a connection replaces everything before it, regardless of its id.
            if self.last_id is not None and number <= _number(self.last_id) and not (whole and first):
                logger.warning("the agent sent event %d of task %s again; it is skipped", number, self.task_id)
                return
        event = self._event(frame, snapshot=whole and snapshot)
        if event.last and self._lossy and isinstance(frame.value, TaskStatusUpdateEvent):
            task = await self._closing_task()
            if task is not None:
                ended = task.status.state is frame.value.status.state
                yield Event(task, frame.id, snapshot=True, last=ended)
                if ended:
                    return
        yield event

    def _event(self, frame: StreamFrame, *, snapshot: bool) -> Event:
        value = frame.value
        if frame.id is not None:
            self.last_id = frame.id
        event = Event(value, frame.id, snapshot=snapshot, last=self._ends(value))
        if self.task_id is None:
            self.task_id = event.task_id or None
        elif event.task_id and event.task_id != self.task_id:
            raise A2AResponseError("the agent sent an event of another task")
        if event.state is not None:
            self._state = event.state
        elif isinstance(value, TaskArtifactUpdateEvent) and self._state is not None and self._state.paused:
            self._state = None  # the task is running again
        return event

    def _ends(self, value: StreamEvent) -> bool:
        """Return whether the stream ends. After auth_required it may continue, but not in 0.3."""
        if isinstance(value, Message):
            return True
        if isinstance(value, TaskArtifactUpdateEvent):
            return False
        state = value.status.state
        if isinstance(value, Task) or state.terminal:  # a stream may also begin with a task
            return state.terminal
        return state is TaskState.input_required or (state.paused and self._hints.version is ProtocolVersion.v0_3)

    async def _closing_task(self) -> Task | None:
        assert self.task_id is not None
        try:
            return await self._get(self.task_id)
        except KeelboltError as error:
            logger.warning("task %s could not be loaded at the end of its stream: %s", self.task_id, error)
            return None

    async def _is_over(self) -> bool:
        """Return whether the task is terminal; False if the agent can't be reached."""
        assert self.task_id is not None
        try:
            return (await self._get(self.task_id)).status.state.terminal
        except (A2AConnectionError, BusyError):
            return False

    async def _polled(self, refusal: KeelboltError | None) -> AsyncGenerator[Event, None]:
        """Poll the task and yield each change until it is terminal, if the agent offers no stream.

        Raise A2AConnectionError if it does not change for too long.
        """
        assert self.task_id is not None
        while True:
            task = await self._get(self.task_id)
            over = task.status.state.terminal or task.status.state.paused
            if over or task != self._shown:
                event = self._event(StreamFrame(task), snapshot=True)
                yield Event(event.value, event.id, snapshot=True, last=over)
                if over:
                    return
            seconds = self._backoff.next()
            if seconds is None:
                why = f": {refusal}" if refusal is not None else ""
                raise A2AConnectionError(f"the agent does not resume the stream, and the task does not change{why}")
            await asyncio.sleep(min(seconds, POLL_SECONDS))


async def _read_to_end(events: AsyncGenerator[Event, None]) -> None:
    """Read the end of the response, which normally follows the last event: then its connection can be used again."""
    with contextlib.suppress(KeelboltError, TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            async for _ in events:
                pass


def _is_refusal(error: KeelboltError, after: str | None) -> bool:
    """Return whether the agent refused the subscription itself, not an invalid response or the caller's own id."""
    if isinstance(error, A2AResponseError):
        return error.status is not None and error.status != 200
    return not (isinstance(error, InvalidParamsError) and after is not None)


def _follows(last: str | None, frame: StreamFrame) -> bool:
    """Return whether an agent without the resume extension continues with exactly the next number."""
    numbers = (last or "", frame.id or "")
    if isinstance(frame.value, Task) or not all(text.isascii() and text.isdigit() for text in numbers):
        return False
    return int(numbers[1]) == int(numbers[0]) + 1


def _shows(task: Task, frame: StreamFrame) -> bool:
    """Return whether a task that was loaded after this event already includes it."""
    value = frame.value
    if isinstance(value, TaskStatusUpdateEvent):
        return value.status == task.status or any(value.status.message == said for said in task.history)
    if isinstance(value, TaskArtifactUpdateEvent):
        made = next((each for each in task.artifacts if each.artifact_id == value.artifact.artifact_id), None)
        parts = value.artifact.parts
        return not parts or (made is not None and made.parts[-len(parts) :] == parts)
    return True


def _number(text: str) -> int:
    """Return the number of an event id; the ids of the resume extension are increasing numbers."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise A2AResponseError("the agent sent an event id that is not a number")
    return int(text)


# -------------------------------------------------------------------------------------------------------------- backoff


FIRST_SECONDS = 0.1
MOST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Passed to ``on_reconnect`` before each retry: cause, consecutive attempts without progress, delay in seconds."""

    cause: Exception
    attempt: int
    seconds: float
    task_id: str | None = None


class Backoff:
    """Computes delays until ``total_seconds`` pass without progress."""

    def __init__(
        self, total_seconds: float, clock: Callable[[], float], chance: Callable[[], float] = random.random
    ) -> None:
        self._total = total_seconds
        self._clock = clock
        self._chance = chance
        self._since: float | None = None
        self.attempt = 0

    def progress(self) -> None:
        """Reset after progress."""
        self.attempt, self._since = 0, None

    def next(self, at_least: float = 0.0) -> float | None:
        """Return the seconds to wait before the next attempt; None to give up."""
        now = self._clock()
        if self._since is None:
            self._since = now
        left = self._since + self._total - now
        if left <= 0:
            return None
        most: float = min(MOST_SECONDS, FIRST_SECONDS * 2 ** min(self.attempt, 20))
        self.attempt += 1
        return min(max(at_least, most * (0.5 + self._chance() / 2)), left)
