"""The events of a trace in the format of PenguiFlow's command: one line of JSON each, by time, without repeats."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from keelbolt.kernel import Scope
from keelbolt.state.events.history import PRINTED, by_time
from keelbolt.state.events.streams import items_of, once, read_all
from keelbolt.state.families import EVENTS
from keelbolt.state.inspection.shown import reference

Event = dict[str, Any]


async def history(
    scope: Scope, trace: str, *, last: int | None = None, whole: bool = False, follow: bool = False
) -> AsyncGenerator[str, None]:
    """Yield the lines of all events so far, or of the ``last``; with ``follow``, then those of new events.

    A line has the event's payload, and its fields unless the payload has the same name; a ``whole`` line has the
    payload as a separate member.
    """
    stream, seen = reference(trace), set[bytes]()
    entries = await read_all(scope, EVENTS, stream)
    after = entries[-1].seq if entries else (await scope.log_state(EVENTS, stream)).head

    def new(items: Iterable[Event]) -> list[Event]:
        return once(items, *PRINTED, seen=seen)

    events = sorted(new(item for entry in entries for item in items_of(entry)), key=by_time)
    if last is not None:
        events = events[-last:] if last > 0 else []
    for event in events:
        yield _line(event, whole=whole)
    if follow:
        async for entry in scope.tail(EVENTS, stream, after=after):
            for event in new(items_of(entry)):
                yield _line(event, whole=whole)


def _line(event: Event, *, whole: bool) -> str:
    if not whole:
        fields = {name: event[name] for name in ("trace_id", "node_name", "node_id", "ts")}
        event = {"event": event["kind"], **fields, **event["payload"]}
    return json.dumps(event, sort_keys=True, default=str)
