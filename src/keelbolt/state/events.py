"""Events of flows. History is by time, and by arrival where times are equal.

Events of a trace come in bursts, and those that come together are one entry of its log. A repeat is kept and left out
when the history is read: on the way of a flow, telling it from the others would cost as much as keeping it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from keelbolt.errors import InvalidState
from keelbolt.state.codec import dump_fields
from keelbolt.state.desk import Desk
from keelbolt.state.families import EVENTS
from keelbolt.state.names import GLOBAL, name
from keelbolt.state.saving import Saved
from keelbolt.state.streams import once, read_items
from keelbolt.state.writes import ONE, bundled
from keelbolt.storage import Append, Draft, Operation, Scope

BULK = 400  # events in one write

PRINTED = ("trace_id", "ts", "kind", "node_name", "node_id", "payload")  # equal in these is the same event


class Events:
    """``save_event``, ``save_events`` and ``load_history``."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def save(self, event: Any) -> Saved:
        """Keep one event."""
        stream, draft = self._draft(event)
        operations: tuple[Operation, ...] = (Append(EVENTS, stream, (draft,)),)
        if notes := self._desk.note(trace_id=event.trace_id or GLOBAL):
            operations += notes
        return self._desk.save("save_event", operations, len(draft.data), trace_id=event.trace_id, behind=True)

    def save_many(self, events: Iterable[Any]) -> Saved:
        """Keep several; the last part of them answers for all, since order is kept."""
        drafts = [(event.trace_id or GLOBAL, *self._draft(event)) for event in events]
        saved = Saved()
        for start in range(0, len(drafts), BULK):
            streams: dict[str, list[Draft]] = {}
            notes: list[Operation] = []
            for trace_id, stream, draft in drafts[start : start + BULK]:
                streams.setdefault(stream, []).append(draft)
                notes += self._desk.note(trace_id=trace_id)
            appends = [Append(EVENTS, stream, bundled(entries)) for stream, entries in streams.items()]
            size = sum(len(draft.data) for entries in streams.values() for draft in entries)
            saved = self._desk.save("save_events", (*appends, *notes), size, behind=True)
        return saved

    async def load(self, trace_id: str) -> list[Any]:
        """The history of a trace."""

        async def read(scope: Scope) -> list[Any]:
            return once(await read_items(scope, EVENTS, name(trace_id)), *PRINTED)

        none: list[Any] = []
        stored = await self._desk.load("load_history", read, none, trace_id=trace_id)
        stored.sort(key=by_time)
        return [self._desk.types.make("StoredEvent", fields) for fields in stored]

    def _draft(self, event: Any) -> tuple[str, Draft]:
        try:
            fields = dump_fields(event)
            payload = fields["payload"]
        except (TypeError, KeyError):
            raise InvalidState(f"a StoredEvent is wanted, not a {type(event).__name__}") from None
        if type(payload) is not dict:
            if not isinstance(payload, Mapping):
                raise InvalidState(f"the payload of an event must be a mapping, not a {type(payload).__name__}")
            fields["payload"] = dict(payload)
        return name(fields["trace_id"] or GLOBAL), Draft(ONE, self._desk.encode(fields))


def by_time(fields: dict[str, Any]) -> float:
    """The order of a history; what has no time comes first."""
    ts = fields["ts"]
    return ts if isinstance(ts, int | float) and not math.isnan(ts) else -math.inf
