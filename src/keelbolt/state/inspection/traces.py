"""Shows one trace: its events, planner events, trajectories and bindings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from keelbolt.data.display import SOME, first_of, log_page, when
from keelbolt.kernel import Query, Record, Scope
from keelbolt.state.codec import decode
from keelbolt.state.families import BINDINGS, EVENTS, PLANNER_EVENTS, TRACES, TRAJECTORIES
from keelbolt.state.inspection.shown import original, reference, shown, shown_items

TRAJECTORIES_SHOWN = 5
LARGE_TRAJECTORY = 1024 * 1024


class TraceInspection:
    """The traces of one tenant."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def show(self, trace: str, *, session: str | None = None) -> dict[str, Any] | None:
        """Return the trace, or None; with a session, only its trajectory of that session.

        ``more`` names the lists that are limited: to their first items, or to the last ones for trajectories and
        bindings.
        """
        ref = reference(trace)
        noted, events, planner, trajectories, bindings = await asyncio.gather(
            self._scope.get(TRACES, ref),
            self.events(ref, limit=SOME),
            self.planner_events(ref, limit=SOME),
            self._trajectories(ref, session),
            self._of(BINDINGS, ref, SOME, _binding),
        )
        lists: dict[str, tuple[list[Any], bool]] = {
            "events": (events["entries"], events["more"]),
            "plannerEvents": (planner["entries"], planner["more"]),
            "trajectories": trajectories,
            "bindings": bindings,
        }
        if noted is None and not any(found for found, _ in lists.values()):
            return None
        return {
            "id": decode(noted.body) if noted is not None else original(ref),
            "ref": ref,
            "seen": when(noted.fields.get("seen")) if noted is not None else None,
            **{name: found for name, (found, _) in lists.items()},
            "more": [name for name, (_, more) in lists.items() if more],
        }

    async def events(self, trace: str, *, after: int | None = None, limit: int = 100) -> dict[str, Any]:
        """Return the flow's events after this seq in order of arrival."""
        return await log_page(self._scope, EVENTS, reference(trace), shown_items, after=after, limit=limit)

    async def planner_events(self, trace: str, *, after: int | None = None, limit: int = 100) -> dict[str, Any]:
        """Return the planner's events after this seq in order of arrival."""
        return await log_page(self._scope, PLANNER_EVENTS, reference(trace), shown_items, after=after, limit=limit)

    async def _trajectories(self, ref: str, session: str | None) -> tuple[list[Any], bool]:
        if session is not None:
            record = await self._scope.get(TRAJECTORIES, f"{ref}/{reference(session)}")
            return [_trajectory(record)] if record is not None else [], False
        return await self._of(TRAJECTORIES, ref, TRAJECTORIES_SHOWN, _trajectory)

    async def _of(self, collection: str, ref: str, limit: int, show: Callable[[Record], Any]) -> tuple[list[Any], bool]:
        query = Query(collection, {"trace": ref}, order="saved", newest_first=True)
        return await first_of(self._scope, query, show, limit)


def _binding(record: Record) -> Any:
    return shown(record.body)


def _trajectory(record: Record) -> dict[str, Any]:
    stored = shown(record.body, large_bytes=LARGE_TRAJECTORY)
    return {
        "session": stored["session_id"],
        "sessionRef": record.key.rpartition("/")[2],
        "saved": when(record.fields.get("saved")),
        "size": len(record.body),
        "trajectory": stored["trajectory"],
    }
