"""The SDK's event stream on Keelbolt's log: pushed, not polled, and the same on every replica."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from a2a.server.cluster import TaskEventStream, TaskVersion, VersionedEvent

from keelbolt.a2a_sdk.codec import event_of
from keelbolt.a2a_sdk.scope import ScopeResolver
from keelbolt.kernel import Entry, Scope
from keelbolt.protocol import v1
from keelbolt.tasks.events import TaskFeeds, TaskSnapshot
from keelbolt.tasks.notes import WIRE_KINDS


class KeelboltEventStream(TaskEventStream):
    """Streams the event of each save with the version that the save created."""

    def __init__(self, events: TaskFeeds, directory: ScopeResolver) -> None:
        self._events = events
        self._directory = directory

    async def publish(self, task_id: str, event: VersionedEvent) -> None:
        """Do nothing: the store wrote the event in the same commit as the task."""

    async def subscribe(self, task_id: str, *, after: TaskVersion) -> AsyncGenerator[VersionedEvent, None]:
        scope = await self._directory.find(task_id)
        if scope is None:
            return
        seq: int = 0 if after.is_missing else after._value  # type: ignore[assignment]  # noqa: SLF001
        splice: v1.EventEncoder | None = None
        events = self._events.follow(scope, task_id, after=seq)
        try:
            async for event in events:
                if isinstance(event, TaskSnapshot):
                    json = await self._events.store.task_json(event.task)
                    yield VersionedEvent(event_of(v1.sent_task(json)), TaskVersion(event.seq))
                elif event.kind in WIRE_KINDS:
                    splice = splice or await self._splice(scope, task_id)
                    yield VersionedEvent(event_of(_written(splice, event)), TaskVersion(event.seq))
        finally:
            await events.aclose()

    async def _splice(self, scope: Scope, task_id: str) -> v1.EventEncoder:
        record = await self._events.store.record(scope, task_id)
        return v1.EventEncoder(task_id, record.context_id if record is not None else "")

    async def destroy(self, task_id: str) -> None:
        """Do nothing: the log stays for late subscribers."""


def _written(splice: v1.EventEncoder, entry: Entry) -> bytes:
    return splice.artifact_update(entry.data) if entry.kind == "artifact" else splice.status_update(entry.data)
