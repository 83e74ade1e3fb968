"""Data of traces: events of flows, planner events, trajectories, and bindings to remote tasks.

A history of events is sorted by time, then by arrival. Events of a trace come in bursts; events that arrive together
are one entry of its log. Repeated events are stored and removed when the history is read: recognising them during a
save would cost as much as storing them.

Planner events are in order of arrival: their times are monotonic and can't be compared across processes.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from keelbolt.errors import CommitRefused, InvalidState, LogTrimmed, StateNotSaved
from keelbolt.kernel import Append, Draft, Operation, Put, Query, Record, Replace, Scope
from keelbolt.kernel.contract import MAX_COMMIT_BYTES, MAX_VALUE_BYTES
from keelbolt.kernel.records import Fields
from keelbolt.kernel.requests import MAX_OPERATIONS
from keelbolt.state.codec import canonical, decode, dump_fields
from keelbolt.state.engine.writes import ONE, Saved, bundled
from keelbolt.state.events.streams import PAGE, items_of, once, read_items
from keelbolt.state.families import BINDINGS, EVENTS, PLANNER_EVENTS, TRAJECTORIES
from keelbolt.state.names import GLOBAL, digest, joined, name, unnamed
from keelbolt.state.store_context import StoreContext, wanted

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


# -------------------------------------------------------------------------------------------------------------- planner


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


# --------------------------------------------------------------------------------------------------------- trajectories


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


# ------------------------------------------------------------------------------------------------------ remote bindings


class Bindings:
    """``save_remote_binding``, ``find_binding``, ``list_bindings`` and ``mark_binding_terminal``."""

    def __init__(self, desk: StoreContext) -> None:
        self._desk = desk

    def save(self, binding: Any) -> Saved:
        """Save a binding; it replaces an older one of the same trace, context and task."""
        wanted(binding, "RemoteBinding", "trace_id", "context_id", "task_id", "agent_url", "__dataclass_fields__")
        fields = dump_fields(binding)
        body = self._desk.encode(fields)
        key = joined(binding.trace_id, binding.context_id, binding.task_id)
        kept = Put(BINDINGS, key, body, binding_fields(fields, self._desk.tick()))
        lives, notes = self._desk.note(session_id=fields.get("router_session_id"), trace_id=binding.trace_id)
        trace_id = binding.trace_id
        return self._desk.save("save_remote_binding", (kept, *notes), len(body), trace_id=trace_id, lives=lives)

    async def find(self, session: str, agent_url: str, skill: str, tenant: str | None, user: str | None) -> Any | None:
        """Return the last saved open binding of this conversation, or None."""
        mark = _conversation(session, agent_url, skill, tenant, user)
        query = Query(BINDINGS, {"conversation": mark}, order="saved", newest_first=True)

        async def read(scope: Scope) -> Any | None:
            page = await scope.find(query, limit=1)
            return decode(page.records[0].body) if page.records else None

        stored = await self._desk.load("find_binding", read)
        return self._desk.types.make("RemoteBinding", stored) if stored is not None else None

    async def list(self, session: str) -> list[Any]:
        """Return the bindings of a session in the order in which they were saved."""
        query = Query(BINDINGS, {"session": name(session)}, order="saved")

        async def read(scope: Scope) -> list[Any]:
            return [decode(record.body) async for record in scope.scan(query)]

        stored = await self._desk.load("list_bindings", read)
        return [self._desk.types.make("RemoteBinding", fields) for fields in stored]

    async def end(self, trace_id: str, context_id: str | None, task_id: str) -> None:
        """Mark the binding as terminal, if it exists: it accepts no further turn."""
        key = joined(trace_id, context_id, task_id)

        async def write(scope: Scope) -> None:
            while (record := await scope.get(BINDINGS, key)) is not None:
                fields = {**decode(record.body), "is_terminal": True}
                body = self._desk.encode(fields)
                try:
                    await scope.commit(
                        Replace(BINDINGS, key, record.version, body, binding_fields(fields, self._desk.tick()))
                    )
                except CommitRefused:  # saved by another process meanwhile
                    continue
                return

        try:
            await self._desk.load("mark_binding_terminal", write, trace_id=trace_id, changes=True)
        except StateNotSaved:
            if self._desk.policy == "strict":
                raise


def binding_fields(stored: dict[str, Any], saved: int) -> Fields:
    """Return the indexed fields of a binding; ``saved`` is the time in microseconds since 1970."""
    session, skill = stored.get("router_session_id"), stored.get("remote_skill")
    fields: dict[str, Any] = {"trace": name(stored["trace_id"]), "saved": saved}
    if session is not None:
        fields["session"] = name(session)
    if session is not None and skill is not None and not stored.get("is_terminal"):
        fields["conversation"] = _conversation(
            session, stored["agent_url"], skill, stored.get("tenant_id"), stored.get("user_id")
        )
    return fields


def _conversation(*ids: str | None) -> str:
    return digest(json.dumps(ids).encode())
