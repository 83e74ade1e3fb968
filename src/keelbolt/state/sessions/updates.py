"""The updates of a session: stored in its log, followed from any process, sent to clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self
from weakref import WeakSet

from keelbolt.kernel import Entry, Operation, Scope
from keelbolt.state.codec import decode
from keelbolt.state.families import UPDATES
from keelbolt.state.names import name
from keelbolt.state.sessions.storage import SessionStorage
from keelbolt.state.types.tasks import StateUpdate, SteeringEvent, TaskState, UpdateType

if TYPE_CHECKING:
    from keelbolt.state.sessions.session import StreamingSession
    from keelbolt.state.store import StateStore

Reader = Callable[[Entry], Any]


class Subscription(AsyncIterator[Any]):
    """Iterates over updates as they are committed. Waiting can be cancelled and resumed without losing updates.

    It ends when it or its session is closed.
    """

    def __init__(self, storage: SessionStorage, session_id: str, after: int, read: Reader) -> None:
        self._storage = storage
        self._stream = name(session_id)
        self._after = after
        self._read = read
        self._ready: deque[Any] = deque()
        self._looking: asyncio.Task[tuple[Entry, ...]] | None = None
        self.closed = False

    async def __anext__(self) -> Any:
        while not self._ready:
            if self.closed:
                raise StopAsyncIteration
            await self._look()
        return self._ready.popleft()

    async def _look(self) -> None:
        self._looking = asyncio.ensure_future(self._storage.next_entries(UPDATES, self._stream, self._after))
        try:
            entries = await self._looking
        except asyncio.CancelledError:
            if self.closed:
                raise StopAsyncIteration from None
            raise
        self._after = entries[-1].seq
        updates = (self._read(entry) for entry in entries)
        self._ready.extend(update for update in updates if update is not None)

    async def aclose(self) -> None:
        """Close the subscription."""
        self.close()

    def close(self) -> None:
        """Close the subscription, also while a caller waits for the next update."""
        self.closed = True
        self._ready.clear()
        if self._looking is not None:
            self._looking.cancel()


class SessionUpdates:
    """Publishes and follows the updates of one session. ``checks`` returns the checks for each write of a task.

    A subscription follows the log, which is the same for every process: stored and live updates come from one source,
    so none is missed or repeated.
    """

    def __init__(
        self,
        session_id: str,
        store: StateStore,
        storage: SessionStorage,
        checks: Callable[[str], tuple[Operation, ...]],
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._storage = storage
        self._checks = checks
        self._open: WeakSet[Subscription] = WeakSet()

    def report(self, task_id: str, kind: UpdateType, content: Any, **fields: Any) -> StateUpdate:
        """Publish an update: it is saved, and subscribers receive it when it is committed."""
        types = self._store.types
        update: StateUpdate = types.StateUpdate(
            session_id=self._session_id,
            task_id=task_id,
            update_type=types.UpdateType(kind.value),
            content=content,
            **fields,
        )
        self._store.save_update(update, checks=self._checks(task_id))
        return update

    def report_status(self, task: TaskState, reason: str | None) -> None:
        """Publish the status of a task, with the reason."""
        content = {
            "status": task.status.value,
            "reason": reason,
            "priority": task.priority,
            "task_type": task.task_type.value,
            "progress": task.progress,
        }
        self.report(task.task_id, UpdateType.STATUS_CHANGE, content, trace_id=task.trace_id)

    def notify(self, task_id: str, severity: str, title: str, body: str, *, trace_id: str | None = None) -> None:
        """Publish a notification for the user."""
        content = {"severity": severity, "title": title, "body": body}
        self.report(task_id, UpdateType.NOTIFICATION, content, trace_id=trace_id)

    async def subscribe(
        self, task_ids: Iterable[str] | None, update_types: Iterable[Any] | None, since_id: str | None
    ) -> Subscription:
        """Follow the updates from now on, or those after ``since_id``."""
        tasks = None if task_ids is None else {name(task_id) for task_id in task_ids}
        kinds = None if update_types is None else set(update_types)

        def read(entry: Entry) -> Any:
            if tasks is not None and entry.kind not in tasks:  # the kind of an entry is the name of its task
                return None
            update = self._store.types.make("StateUpdate", decode(entry.data))
            return update if kinds is None or update.update_type in kinds else None

        after = await self._storage.call(lambda scope: self._start(scope, since_id))
        subscription = Subscription(self._storage, self._session_id, after, read)
        self._open.add(subscription)
        return subscription

    def close(self) -> None:
        """Close all subscriptions."""
        for subscription in list(self._open):
            subscription.close()

    async def _start(self, scope: Scope, since_id: str | None) -> int:
        stream = name(self._session_id)
        state = await scope.log_state(UPDATES, stream)
        if since_id is None:
            return state.head
        seq = await scope.seq_of(UPDATES, stream, name(since_id))
        return state.floor if seq is None else max(seq, state.floor)  # unknown id: all kept updates


# -------------------------------------------------------------------------------------------------------------- clients


class SessionTransport(Protocol):
    """Any bidirectional connection, such as a WebSocket or two queues."""

    async def send(self, update: StateUpdate) -> None:
        """Send an update to the client."""

    async def receive(self) -> SteeringEvent | None:
        """Return the client's next control, or None if the client has disconnected."""

    async def close(self) -> None:
        """Close the connection."""


class SessionConnection:
    """Connects a session and a client while it is entered. ``since_id``: the last update that the client has seen.

    async with await session.connect(transport) as connection:
        await connection.wait()  # until the client is gone
    """

    def __init__(self, session: StreamingSession, transport: SessionTransport, *, since_id: str | None = None) -> None:
        self._session = session
        self._transport = transport
        self._since_id = since_id
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        updates = await self._session.subscribe(since_id=self._since_id)

        async def send() -> None:
            async for update in updates:
                await self._transport.send(update)

        async def receive() -> None:
            while (event := await self._transport.receive()) is not None:
                await self._session.steer(event)

        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(send(), name="session-send"),
            loop.create_task(receive(), name="session-receive"),
        ]
        return self

    async def wait(self) -> None:
        """Return when the client disconnects or the session is closed; raise the error that broke the connection."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._transport.close()
