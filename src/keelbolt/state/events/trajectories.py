"""Trajectories of planners, one for each trace and session."""

from __future__ import annotations

from typing import Any

from keelbolt.kernel import Put, Query, Record, Scope
from keelbolt.kernel.records import Fields
from keelbolt.state.codec import decode
from keelbolt.state.engine.saving import Saved
from keelbolt.state.families import TRAJECTORIES
from keelbolt.state.names import joined, name, unnamed
from keelbolt.state.store_context import StoreContext, wanted


class Trajectories:
    """``save_trajectory``, ``get_trajectory`` and ``list_traces``."""

    def __init__(self, desk: StoreContext) -> None:
        self._desk = desk

    def save(self, trace_id: str, session_id: str, trajectory: Any) -> Saved:
        """Save a trajectory; its trace becomes the session's newest."""
        wanted(trajectory, "Trajectory", "serialise")
        body = self._desk.encode({"trace_id": trace_id, "session_id": session_id, "trajectory": trajectory.serialise()})
        fields: Fields = {"session": name(session_id), "trace": name(trace_id), "saved": self._desk.tick()}
        kept = Put(TRAJECTORIES, joined(trace_id, session_id), body, fields)
        lives, notes = self._desk.note(session_id=session_id, trace_id=trace_id)
        operations = (kept, *notes)
        return self._desk.save("save_trajectory", operations, len(body), trace_id=trace_id, behind=True, lives=lives)

    async def load(self, trace_id: str, session_id: str) -> Any | None:
        """Return the trajectory, or None."""

        async def read(scope: Scope) -> Any | None:
            record = await scope.get(TRAJECTORIES, joined(trace_id, session_id))
            return decode(record.body)["trajectory"] if record is not None else None

        stored = await self._desk.load("get_trajectory", read, trace_id=trace_id)
        return self._desk.types.Trajectory.from_serialised(stored) if stored is not None else None

    async def traces(self, session_id: str, limit: int) -> list[str]:
        """Return the traces of a session, the last saved first."""
        query = Query(TRAJECTORIES, {"session": name(session_id)}, order="saved", newest_first=True)

        async def read(scope: Scope) -> list[str]:
            return [_trace(record) async for record in scope.scan(query, limit=limit)]

        return await self._desk.load("list_traces", read)


def _trace(record: Record) -> str:
    trace_id = unnamed(record.key.partition("/")[0])
    return trace_id if trace_id is not None else decode(record.body)["trace_id"]
