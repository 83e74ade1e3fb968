"""The open sessions of this process."""

from __future__ import annotations

import asyncio
from functools import partial
from types import TracebackType
from typing import Any, Self

from keelbolt.state.adapters import HybridStateStore
from keelbolt.state.sessions.controls import ControlPolicy
from keelbolt.state.sessions.process import SessionProcess
from keelbolt.state.sessions.recovery import OtherSessions, Recover, fail_orphans
from keelbolt.state.sessions.session import StreamingSession
from keelbolt.state.sessions.storage import SessionRun, underlying
from keelbolt.state.sessions.tasks import SessionLimits
from keelbolt.state.sessions.telemetry import TaskTelemetrySink
from keelbolt.state.store import StateStore


class SessionManager:
    """Opens each session once. All sessions share one store and the settings given here.

    From ``async with`` or the first session until `close`, this process takes over the tasks of dead processes, of all
    sessions in the storage.
    """

    session_id = None

    def __init__(
        self,
        *,
        state_store: StateStore | HybridStateStore | None = None,
        limits: SessionLimits | None = None,
        control_policy: ControlPolicy | None = None,
        telemetry_sink: TaskTelemetrySink | None = None,
        recover: Recover = fail_orphans,
    ) -> None:
        self._owns_store = state_store is None
        self._store = StateStore("memory:") if state_store is None else underlying(state_store)
        self.tenant = self._store.tenant
        limits = limits or SessionLimits()
        self._make = partial(
            StreamingSession,
            limits=limits,
            control_policy=control_policy,
            telemetry_sink=telemetry_sink,
            recover=recover,
        )
        self._process = SessionProcess.of(self._store, lease_seconds=limits.lease_seconds)
        self._others = OtherSessions(self._store, self._make)
        self._sessions: dict[str, StreamingSession] = {}
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._process.enter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def get_or_create(self, session_id: str) -> StreamingSession:
        """Return the session, hydrated."""
        self._process.enter(self)
        async with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                session = self._sessions[session_id] = self._make(session_id, state_store=self._store)
        await session.hydrate()
        return session

    async def get(self, session_id: str) -> StreamingSession | None:
        """Return the session if it is open here, otherwise None."""
        async with self._lock:
            return self._sessions.get(session_id)

    async def drop(self, session_id: str) -> None:
        """Close the session if it is open here. Stored data stays."""
        async with self._lock:
            session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()

    async def take(self, run: SessionRun) -> None:
        """Recover a task of a session that is not open here."""
        await self._others.take(run)

    def steered(self, event: Any) -> None:
        """Do nothing: the session that runs a task receives its controls."""

    def lost(self, run: SessionRun) -> None:
        """Do nothing: the session that runs a task stops it."""

    async def close(self) -> None:
        """Close all sessions."""
        await self._others.close()
        for session_id in list(self._sessions):
            await self.drop(session_id)
        await self._process.leave(self)
        if self._owns_store:
            await self._store.close()
