"""Lists sessions, traces and memory states in pages."""

from __future__ import annotations

import asyncio
from typing import Any

from keelbolt.data.display import when
from keelbolt.kernel import Kernel, Page, Query, Record, Scope
from keelbolt.state.codec import decode
from keelbolt.state.families import MEMORY, SESSIONS, STEERING, TASK_ORDER, TRACES, UPDATES
from keelbolt.state.inspection.shown import original, reference, shown

STATE = "~state/"
TENANTS = 1000  # tenants in one list


async def tenants(kernel: Kernel, *, after: str = "") -> list[str]:
    """Return the tenants that have state here, sorted by name; for a long name, its digest."""
    found = await kernel.partitions(after=STATE + after, limit=TENANTS)
    return [original(partition.removeprefix(STATE)) for partition in found if partition.startswith(STATE)]


class Lists:
    """Lists of one tenant. Each is a dict with the list and ``nextPageToken``, which is empty on the last page."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def sessions(self, *, limit: int = 50, cursor: str | None = None) -> dict[str, Any]:
        """List sessions, the latest note first, with the size of each."""
        page = await self._page(SESSIONS, "seen", limit, cursor)
        return _listed("sessions", await asyncio.gather(*map(self._session, page.records)), page)

    async def traces(self, *, limit: int = 50, cursor: str | None = None) -> dict[str, Any]:
        """List traces, the latest note first."""
        page = await self._page(TRACES, "seen", limit, cursor)
        return _listed("traces", [noted(record) for record in page.records], page)

    async def memories(self, *, limit: int = 50, cursor: str | None = None) -> dict[str, Any]:
        """List the keys of memory states, the last saved first."""
        page = await self._page(MEMORY, "saved", limit, cursor)
        return _listed("memory", [_memory(record) for record in page.records], page)

    async def memory(self, key: str) -> dict[str, Any] | None:
        """Return the memory state of this key, or None."""
        record = await self._scope.get(MEMORY, reference(key))
        return None if record is None else {**_memory(record), "state": shown(record.body)["state"]}

    async def _session(self, record: Record) -> dict[str, Any]:
        logs = (TASK_ORDER, UPDATES, STEERING)
        tasks, updates, steering = await asyncio.gather(*(self._scope.log_state(log, record.key) for log in logs))
        counts = {
            "tasks": tasks.head - tasks.floor,
            "updates": updates.head - updates.floor,
            "steering": steering.head - steering.floor,
        }
        return {**noted(record), "counts": counts}

    async def _page(self, collection: str, order: str, limit: int, cursor: str | None) -> Page:
        return await self._scope.find(Query(collection, order=order, newest_first=True), limit=limit, cursor=cursor)


def noted(record: Record) -> dict[str, Any]:
    """Return a session or trace: its id, its name in paths, and the time of its last use, accurate to an hour."""
    return {"id": decode(record.body), "ref": record.key, "seen": when(record.fields.get("seen"))}


def _memory(record: Record) -> dict[str, Any]:
    key = decode(record.body)["key"]
    return {"key": key, "ref": record.key, "saved": when(record.fields.get("saved")), "size": len(record.body)}


def _listed(name: str, items: list[dict[str, Any]], page: Page) -> dict[str, Any]:
    return {name: items, "nextPageToken": page.cursor or ""}
