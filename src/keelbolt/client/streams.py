"""Streams that go on: a broken connection is opened again, and nothing is lost, repeated or passed over in silence.

With an agent whose events have ids (its card declares the resume extension), a stream goes on after the last event
that came. With any other agent it goes on as the specification says: subscribing gives the task as it is now, which is
passed on as a *snapshot*; the events that led there can't be had.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing

from keelbolt.client.backoff import Backoff, Reconnect
from keelbolt.client.events import Event
from keelbolt.client.transport import Frame, Hints
from keelbolt.errors import (
    A2AConnectionError,
    A2AResponseError,
    BusyError,
    KeelboltError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from keelbolt.protocol.types import Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from keelbolt.protocol.versions import Version

logger = logging.getLogger("keelbolt.client")

Frames = AbstractAsyncContextManager[AsyncGenerator[Frame, None]]


class Stream:
    """One task, followed until it is over or waits for its user.

    ``send`` opens it by sending the message (None: it begins by subscribing), ``subscribe`` goes on after an id,
    ``get`` loads the task. ``resumes``: the agent has ids; ``again``: a message may be sent twice.
    """

    def __init__(
        self,
        *,
        send: Callable[[Hints], Awaitable[Frames]] | None,
        subscribe: Callable[[str, str | None, Hints], Awaitable[Frames]],
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
        self._over = False
        self._connections = 0
        self._hints = Hints()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Every event, once. Raises what the agent answers, or A2AConnectionError once it was away for too long."""
        while True:
            cause: Exception
            came = False
            try:
                async with aclosing(self._connection()) as events:
                    async for event in events:
                        came = True
                        if not event.snapshot:
                            self._backoff.progress()
                        yield event
                        if self._over:
                            return
            except (A2AConnectionError, BusyError) as error:
                if self.task_id is None and not self._may_send_again(error):
                    raise
                if self._state is TaskState.input_required:
                    return  # nothing more was to come
                cause = error
            else:
                if self._state is not None and self._state.paused:
                    return
                if not came and self.task_id is not None and await self._nothing_follows(self.task_id):
                    return
                if self.task_id is None and not self._again:
                    raise A2AResponseError("the agent ended the stream without a word")
                cause = A2AConnectionError("the agent ended the stream before the task was over")
            await self._pause(cause)

    def _may_send_again(self, error: Exception) -> bool:
        if isinstance(error, BusyError) or not getattr(error, "sent", True):
            self._connections = 0  # nothing of it was taken: the next one is the first
            return True
        return self._again

    async def _nothing_follows(self, task_id: str) -> bool:
        """Whether the agent ended the stream at once since the task was over at the event that came last."""
        try:
            return self._resumes and (await self._get(task_id)).status.state.terminal
        except (A2AConnectionError, BusyError):
            return False

    async def _pause(self, cause: Exception) -> None:
        at_least = max(self._hints.retry_seconds, float(getattr(cause, "retry_after", 0)))
        seconds = self._backoff.next(at_least)
        if seconds is None:
            raise cause
        level = logging.WARNING if self._tell is None else logging.INFO  # who is told has no need of the log
        logger.log(level, "a stream broke (%s); connecting again in %.1f seconds", cause, seconds)
        if self._tell is not None:
            self._tell(Reconnect(cause, self._backoff.attempt, seconds, self.task_id))
        await asyncio.sleep(seconds)

    async def _connection(self) -> AsyncGenerator[Event, None]:
        """The events of one connection."""
        first_connection = self._connections == 0
        self._connections += 1
        self._hints = Hints()
        if self.task_id is None:
            assert self._send is not None
            opening, sends = await self._send(self._hints), True
        else:
            after = self.last_id if self._resumes else None
            opening, sends = await self._subscribe(self.task_id, after, self._hints), False
        first = True
        try:
            async with opening as frames:
                async for frame in frames:
                    if first and not sends and not first_connection and not self._continues(frame):
                        async with aclosing(self._caught_up(frame)) as several:
                            async for each in several:
                                yield each
                    else:
                        answers = sends and first_connection and first  # to the message: the task as it begins
                        event = self._taken(frame, snapshot=not answers, first=first)
                        if event is not None:
                            yield event
                    first = False
        except (UnsupportedOperationError, TaskNotFoundError) as error:
            # An agent tells nothing to those who subscribe to a task that is over meanwhile.
            if sends or first_connection or not first:
                raise
            yield await self._ended(error)

    def _continues(self, frame: Frame) -> bool:
        """Whether this frame, the first of a connection, leaves nothing open: it has an id to go by, or is a task."""
        return (self._resumes and frame.id is not None) or isinstance(frame.value, Task | Message)

    def _taken(self, frame: Frame, *, snapshot: bool, first: bool) -> Event | None:
        """The event of a frame; None for one that came before."""
        value = frame.value
        whole = isinstance(value, Task)
        if self._resumes and frame.id is not None:
            number = _number(frame.id)
            # A task at the beginning of a connection stands for everything before it, whatever its id.
            if self.last_id is not None and number <= _number(self.last_id) and not (whole and first):
                logger.warning("the agent sent event %d of task %s again; it is left out", number, self.task_id)
                return None
        if frame.id is not None:
            self.last_id = frame.id
        event = Event(value, frame.id, snapshot=whole and snapshot)
        if self.task_id is None:
            self.task_id = event.task_id
        elif event.task_id is not None and event.task_id != self.task_id:
            raise A2AResponseError("the agent sent an event of another task")
        if event.state is not None:
            self._state = event.state
        elif isinstance(value, TaskArtifactUpdateEvent) and self._state is not None and self._state.paused:
            self._state = None  # it works again
        self._over = event.last or self._ends(event)
        return event

    def _ends(self, event: Event) -> bool:
        """In 0.3 a stream is over when the task waits for its user, whether or not the agent closes it."""
        waits = isinstance(event.value, TaskStatusUpdateEvent) and event.value.status.state.paused
        return waits and self._hints.version is Version.v0_3

    async def _caught_up(self, frame: Frame) -> AsyncGenerator[Event, None]:
        """0.3 need not begin with the task: it is loaded, and the event that came is left out if the task shows it."""
        assert self.task_id is not None
        task = await self._get(self.task_id)
        event = self._taken(Frame(task), snapshot=True, first=True)
        assert event is not None
        yield event
        if not self._over and not _shows(task, frame):
            following = self._taken(frame, snapshot=True, first=False)
            if following is not None:
                yield following

    async def _ended(self, error: KeelboltError) -> Event:
        assert self.task_id is not None
        task = await self._get(self.task_id)
        event = self._taken(Frame(task), snapshot=True, first=True)
        assert event is not None
        if not self._over and not task.status.state.paused:
            raise A2AConnectionError(f"the agent does not take up the stream again: {error}") from error
        return event


def _shows(task: Task, frame: Frame) -> bool:
    """Whether a task that was loaded after this event holds it already."""
    value = frame.value
    if isinstance(value, TaskStatusUpdateEvent):
        return value.status == task.status or any(value.status.message == said for said in task.history)
    if isinstance(value, TaskArtifactUpdateEvent):
        made = next((each for each in task.artifacts if each.artifact_id == value.artifact.artifact_id), None)
        return made is not None and made.parts[-len(value.artifact.parts) :] == value.artifact.parts
    return True


def _number(text: str) -> int:
    """The ids of the resume extension are numbers that grow."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise A2AResponseError("the agent gave an event an id that is no number")
    return int(text)
