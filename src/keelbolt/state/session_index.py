"""Lists sessions and traces."""

from __future__ import annotations

from keelbolt.kernel import Query, Scope
from keelbolt.state.codec import decode
from keelbolt.state.families import SESSIONS, TRACES
from keelbolt.state.store_context import StoreContext


class SessionIndex:
    """Reads the notes that each process writes when it first saves data of a session or trace."""

    def __init__(self, desk: StoreContext) -> None:
        self._desk = desk

    async def sessions(self, limit: int) -> list[str]:
        """Return the sessions with the latest notes, the newest first."""
        return await self._newest("list_sessions", SESSIONS, limit)

    async def traces(self, limit: int) -> list[str]:
        """Return the traces with the latest notes, the newest first."""
        return await self._newest("list_all_traces", TRACES, limit)

    async def _newest(self, method: str, collection: str, limit: int) -> list[str]:
        query = Query(collection, order="seen", newest_first=True)

        async def read(scope: Scope) -> list[str]:
            return [decode(record.body) async for record in scope.scan(query, limit=limit, page=1000)]

        return await self._desk.load(method, read)
