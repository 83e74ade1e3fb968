"""Events of flows. A history is sorted by time, then by arrival.

Events of a trace come in bursts; events that arrive together are one entry of its log. Repeated events are stored and
removed when the history is read: recognising them during a save would cost as much as storing them.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from keelbolt.errors import InvalidState, LogTrimmed
from keelbolt.kernel import Append, Draft, Operation, Scope
from keelbolt.kernel.contract import MAX_COMMIT_BYTES, MAX_VALUE_BYTES
from keelbolt.kernel.requests import MAX_OPERATIONS
from keelbolt.state.codec import canonical, dump_fields
from keelbolt.state.engine.saving import Saved
from keelbolt.state.engine.writes import ONE, bundled
from keelbolt.state.events.streams import PAGE, items_of, once, read_items
from keelbolt.state.families import EVENTS
from keelbolt.state.names import GLOBAL, name
from keelbolt.state.store_context import StoreContext

EVENT_BYTES = MAX_VALUE_BYTES - 2  # an entry with several events is a JSON list
BULK_TRACES = MAX_OPERATIONS // 2  # in one commit: each trace has an append and an erasure check
BULK_BYTES = MAX_COMMIT_BYTES - 1024 * 1024  # in one call, which is one commit

READ_BYTES = 1024 * 1024  # in one read of a paged history; a single entry may be larger
PRINTED = ("trace_id", "ts", "kind", "node_name", "node_id", "payload")  # equal in these: the same event


REPEATS = 10_000  # events among which a repeat is recognised while a history is streamed


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Events in order of arrival. ``next`` is the position after which the next page begins; None on the last page."""

    events: list[Any]
    next: int | None


class StateEvents:
    """``save_event``, ``save_events`` and ``load_history``."""

    def __init__(self, desk: StoreContext) -> None:
        self._desk = desk

    def save(self, event: Any) -> Saved:
        """Save one event."""
        stream, draft = self._draft(event)
        lives, notes = self._desk.note(trace_id=event.trace_id or GLOBAL)
        operations: tuple[Operation, ...] = (Append(EVENTS, stream, (draft,)), *notes)
        size = len(draft.data)
        return self._desk.save("save_event", operations, size, trace_id=event.trace_id, behind=True, lives=lives)

    def save_many(self, events: Iterable[Any]) -> Saved:
        """Save several events in one commit: all of them or, with an error that names the event, none."""
        streams: dict[str, list[Draft]] = {}
        traces: dict[str, None] = {}
        size = 0
        for number, event in enumerate(events):
            try:
                stream, draft = self._draft(event)
            except InvalidState as error:
                raise InvalidState(f"event {number} of this call: {error}; no event of the call was saved") from error
            streams.setdefault(stream, []).append(draft)
            traces[event.trace_id or GLOBAL] = None
            size += len(draft.data)
        if size > BULK_BYTES or len(streams) > BULK_TRACES:
            raise InvalidState(
                f"one call saves events of at most {BULK_TRACES} traces and {BULK_BYTES} bytes; this call has "
                f"{len(streams)} traces and {size} bytes, and saved nothing. Make several calls"
            )
        if not streams:
            return Saved()
        appends = [Append(EVENTS, stream, bundled(entries)) for stream, entries in streams.items()]
        noted = [self._desk.note(trace_id=trace_id) for trace_id in traces]
        lives = tuple(life for found, _ in noted for life in found)
        notes = [note for _, found in noted for note in found]
        if len(appends) + len(lives) + len(notes) > MAX_OPERATIONS:  # notes may have their own commit
            self._desk.save("save_events", tuple(notes), 0, behind=True)
            notes = []
        return self._desk.save("save_events", (*appends, *notes), size, behind=True, lives=lives)

    async def load(self, trace_id: str) -> list[Any]:
        """Return the history of a trace."""

        async def read(scope: Scope) -> list[Any]:
            return once(await read_items(scope, EVENTS, name(trace_id)), *PRINTED)

        stored = await self._desk.load("load_history", read, trace_id=trace_id)
        stored.sort(key=by_time)
        return [self._desk.types.make("StoredEvent", fields) for fields in stored]

    async def page(self, trace_id: str, after: int, limit: int) -> HistoryPage:
        """Return events after this position in order of arrival: at least ``limit`` of them, or all that are left."""
        stored, position = await self._page(trace_id, after, limit)
        return HistoryPage([self._desk.types.make("StoredEvent", fields) for fields in stored], position)

    async def _page(self, trace_id: str, after: int, limit: int | None) -> tuple[list[dict[str, Any]], int | None]:
        """Return the stored fields of such a page, and the position after it, or None on the last page.

        Without a limit, the page is the result of one read, so that no byte is read twice.
        """

        async def read(scope: Scope) -> tuple[list[dict[str, Any]], int | None]:
            found: list[dict[str, Any]] = []
            position = after
            while True:
                try:
                    log = await scope.read_log(
                        EVENTS, name(trace_id), after=position, limit=min(limit or PAGE, PAGE), max_bytes=READ_BYTES
                    )
                except LogTrimmed:  # continue at the new start of the log
                    position = (await scope.log_state(EVENTS, name(trace_id))).floor
                    continue
                for entry in log.entries:
                    found += items_of(entry)
                    position = entry.seq
                    if limit is not None and len(found) >= limit:
                        break
                if not log.entries or position >= log.head:
                    return found, None
                if limit is None or len(found) >= limit:
                    return found, position

        return await self._desk.load("load_history_page", read, trace_id=trace_id)

    async def iterate(self, trace_id: str) -> AsyncIterator[Any]:
        """Yield all events in order of arrival, reading page by page. A repeat is omitted if it follows closely."""
        seen: OrderedDict[bytes, None] = OrderedDict()
        position: int | None = 0
        while position is not None:
            stored, position = await self._page(trace_id, position, None)
            for fields in stored:
                mark = sha256(canonical([fields.get(field) for field in PRINTED])).digest()
                if mark not in seen:
                    seen[mark] = None
                    if len(seen) > REPEATS:
                        seen.popitem(last=False)
                    yield self._desk.types.make("StoredEvent", fields)

    def _draft(self, event: Any) -> tuple[str, Draft]:
        try:
            fields = dump_fields(event)
            payload = fields["payload"]
        except (TypeError, KeyError):
            raise InvalidState(f"the event must be a StoredEvent, not {type(event).__name__}") from None
        if type(payload) is not dict:
            if not isinstance(payload, Mapping):
                raise InvalidState(f"the payload of an event must be a mapping, not {type(payload).__name__}")
            fields["payload"] = dict(payload)
        body = self._desk.encode(fields)
        if len(body) > EVENT_BYTES:
            named = f"the event {fields['kind']!r} of trace {fields['trace_id']!r} at {fields['ts']!r}"
            raise InvalidState(
                f"{named} has {len(body)} bytes, the limit is {EVENT_BYTES}; store large data as an artifact"
            )
        return name(fields["trace_id"] or GLOBAL), Draft(ONE, body)


def by_time(fields: dict[str, Any]) -> float:
    """Return the sort key of a history; events without a time come first."""
    ts = fields["ts"]
    return ts if isinstance(ts, int | float) and not math.isnan(ts) else -math.inf
