"""Planner events in order of arrival: their times are monotonic and can't be compared across processes."""

from __future__ import annotations

from typing import Any

from keelbolt.kernel import Append, Draft, Operation, Scope
from keelbolt.state.codec import dump_fields
from keelbolt.state.engine.saving import Saved
from keelbolt.state.engine.writes import ONE
from keelbolt.state.events.streams import once, read_items
from keelbolt.state.families import PLANNER_EVENTS
from keelbolt.state.names import name
from keelbolt.state.store_context import StoreContext, wanted


class PlannerEvents:
    """``save_planner_event`` and ``list_planner_events``."""

    def __init__(self, desk: StoreContext) -> None:
        self._desk = desk

    def save(self, trace_id: str, event: Any) -> Saved:
        """Save one event; a repeat is the same event."""
        wanted(event, "PlannerEvent", "event_type", "ts", "__dataclass_fields__")
        fields = dump_fields(event)
        fields["extra"] = dict(event.extra)
        body = self._desk.encode(fields)
        lives, notes = self._desk.note(trace_id=trace_id)
        operations: tuple[Operation, ...] = (Append(PLANNER_EVENTS, name(trace_id), (Draft(ONE, body),)), *notes)
        size = len(body)
        return self._desk.save("save_planner_event", operations, size, trace_id=trace_id, behind=True, lives=lives)

    async def load(self, trace_id: str) -> list[Any]:
        """Return all events of a trace."""

        async def read(scope: Scope) -> list[Any]:
            return once(await read_items(scope, PLANNER_EVENTS, name(trace_id)))

        stored = await self._desk.load("list_planner_events", read, trace_id=trace_id)
        return [self._desk.types.make("PlannerEvent", fields) for fields in stored]
