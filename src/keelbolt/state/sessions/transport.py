"""Connects a session to a remote client: sends updates, receives controls."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from keelbolt.state.types.steering import SteeringEvent
from keelbolt.state.types.tasks import StateUpdate

if TYPE_CHECKING:
    from keelbolt.state.sessions.session import StreamingSession


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
