"""Inspection of a store: paged lists, and single items with a summary of the data that belongs to them.

It reads an open kernel and writes nothing. Values are shown as readable JSON and truncated if they are long. To get
values that can be restored, export them (`keelbolt.data`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from keelbolt.data.display import LARGE_BYTES, SOME, first_of, log_page, plain, when
from keelbolt.errors import BlobNotFound
from keelbolt.kernel import BlobReader, Entry, Kernel, Page, Query, Record, Scope
from keelbolt.kernel.requests import check_partition
from keelbolt.state.artifacts.record import NEVER, ArtifactRecord
from keelbolt.state.codec import decode
from keelbolt.state.engine.writes import BURSTS
from keelbolt.state.events.streams import items_of, once, read_all
from keelbolt.state.events.traces import PRINTED, by_time
from keelbolt.state.families import (
    ARTIFACTS,
    BINDINGS,
    CONTEXTS,
    CONTROLS,
    EVENTS,
    MEMORY,
    PATCHES,
    PLANNER_EVENTS,
    RUNS,
    SESSIONS,
    SNAPSHOTS,
    STEERING,
    TASK_ORDER,
    TASKS,
    TRACES,
    TRAJECTORIES,
    UPDATES,
    partition_of,
)
from keelbolt.state.names import name, unnamed


class SessionInspection:
    """The sessions of one tenant."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def show(self, session: str) -> dict[str, Any] | None:
        """Return the session, or None. ``more`` names the lists that are limited to their last items."""
        ref = reference(session)
        noted, context, tasks, updates, steering = await asyncio.gather(
            self._scope.get(SESSIONS, ref),
            self._scope.get(CONTEXTS, ref),
            self._tasks(ref),
            self.updates(ref, limit=SOME),
            self.steering(ref, limit=SOME),
        )
        traces, bindings, artifacts, patches, controls = await asyncio.gather(
            self._of(TRAJECTORIES, ref, "saved", _trace),
            self._of(BINDINGS, ref, "saved", _body),
            self._of(ARTIFACTS, ref, "rank", described),
            self._of(PATCHES, ref, "arrived", _body),
            self._of(CONTROLS, ref, "arrived", _body),
        )
        lists: dict[str, tuple[list[Any], bool]] = {
            "tasks": tasks,
            "updates": (updates["entries"], updates["more"]),
            "steering": (steering["entries"], steering["more"]),
            "traces": traces,
            "bindings": bindings,
            "artifacts": artifacts,
            "patches": patches,
            "controls": controls,
        }
        if noted is None and context is None and not any(found for found, _ in lists.values()):
            return None
        return {
            "id": decode(noted.body) if noted is not None else original(ref),
            "ref": ref,
            "seen": when(noted.fields.get("seen")) if noted is not None else None,
            "context": shown(context.body) if context is not None else None,
            **{name: found for name, (found, _) in lists.items()},
            "more": [name for name, (_, more) in lists.items() if more],
        }

    async def task(self, session: str, task: str) -> dict[str, Any] | None:
        """Return one task with the context with which it was started, or None."""
        key = f"{reference(session)}/{reference(task)}"
        found, context = await asyncio.gather(self._scope.get(TASKS, key), self._scope.get(SNAPSHOTS, key))
        if found is None:
            return None
        return {**shown(found.body), "context_snapshot": shown(context.body) if context is not None else None}

    async def updates(self, session: str, *, after: int | None = None, limit: int = 100) -> dict[str, Any]:
        """Return the updates after this seq; without one, the last updates."""
        return await self._log(UPDATES, session, after, limit)

    async def steering(self, session: str, *, after: int | None = None, limit: int = 100) -> dict[str, Any]:
        """Return the steering events after this seq; without one, the last events."""
        return await self._log(STEERING, session, after, limit)

    async def _log(self, log: str, session: str, after: int | None, limit: int) -> dict[str, Any]:
        return await log_page(self._scope, log, reference(session), shown_items, after=after, limit=limit, last=True)

    async def _tasks(self, ref: str) -> tuple[list[dict[str, Any]], bool]:
        """Return the last tasks, the oldest of them first, each with the process that runs it."""
        came = await self._scope.read_log(TASK_ORDER, ref, limit=SOME, backward=True)
        keys = [f"{ref}/{entry.data.decode()}" for entry in reversed(came.entries)]
        tasks, runs = await asyncio.gather(self._scope.get_many(TASKS, keys), self._scope.get_many(RUNS, keys))
        running = [run.key for run in runs if run is not None]
        work = await asyncio.gather(*(self._scope.work(RUNS, key) for key in running))
        holders = {key: item.holder for key, item in zip(running, work, strict=True) if item is not None}
        found = [
            {**shown(task.body), "ref": task.key.rpartition("/")[2], "holder": holders.get(task.key)}
            for task in tasks
            if task is not None
        ]
        return found, came.head - came.floor > SOME

    async def _of(self, collection: str, ref: str, order: str, show: Callable[[Record], Any]) -> tuple[list[Any], bool]:
        query = Query(collection, {"session": ref}, order=order, newest_first=True)
        return await first_of(self._scope, query, show)


def _trace(record: Record) -> dict[str, Any]:
    ref = record.key.partition("/")[0]
    trace = original(ref) if not ref.startswith("~") else decode(record.body)["trace_id"]
    return {"id": trace, "ref": ref, "saved": when(record.fields.get("saved")), "size": len(record.body)}


def _body(record: Record) -> Any:
    return shown(record.body)


# ---------------------------------------------------------------------------------------------------------------- lists


STATE = "~state/"
TENANTS = 1000  # tenants in one list


async def tenants(kernel: Kernel, *, after: str = "") -> list[str]:
    """Return the tenants that have state here, sorted by stored name; for a long name, its digest."""
    check_partition(STATE + after)
    found = await kernel.partitions(after=partition_of(after) if after else STATE, limit=TENANTS)
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


# ------------------------------------------------------------------------------------------------------------ artifacts


PREVIEW_BYTES = 4096


class ArtifactInspection:
    """The artifacts of one tenant."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def list(self, *, session: str | None = None, limit: int = 50, cursor: str | None = None) -> dict[str, Any]:
        """List a session's artifacts, the last used first; without a session, all, the latest expiry first."""
        query = Query(ARTIFACTS, order="expires", since=self._now() + 1, newest_first=True)
        if session is not None:
            query = Query(ARTIFACTS, {"session": reference(session)}, order="rank", newest_first=True)
        page = await self._scope.find(query, limit=limit, cursor=cursor)
        found = [described(record) for record in page.records if self._lasts(record)]
        return {"artifacts": found, "nextPageToken": page.cursor or ""}

    async def show(self, artifact_id: str) -> dict[str, Any] | None:
        """Return the metadata of an artifact, with a preview if it is text; or None."""
        found = await self.open(artifact_id)
        if found is None:
            return None
        record, reader = found
        return {**described(record), "preview": _preview(await reader.range(0, PREVIEW_BYTES), reader.size)}

    async def open(self, artifact_id: str) -> tuple[Record, BlobReader] | None:
        """Return its record and a reader of its bytes; or None."""
        record = await self._scope.get(ARTIFACTS, reference(artifact_id))
        if record is None or not self._lasts(record):
            return None
        try:
            return record, await self._scope.open_blob(ArtifactRecord.of(record).sha256)
        except BlobNotFound:  # deleted meanwhile
            return None

    def _lasts(self, record: Record) -> bool:
        return ArtifactRecord.of(record).expires > self._now()

    def _now(self) -> int:
        return int(time.time() * 1_000_000)


def described(record: Record) -> dict[str, Any]:
    """Return the metadata of an artifact."""
    kept = ArtifactRecord.of(record)
    known = kept.described()
    return {
        "id": kept.id,
        "ref": record.key,
        "filename": kept.filename,
        "mediaType": kept.mime_type,
        "size": kept.size,
        "sha256": kept.sha256,
        "namespace": kept.namespace,
        "scope": known["scope"],
        "source": plain(kept.source, large=True),
        "created": when(kept.created),
        "expires": None if kept.expires >= NEVER else when(kept.expires),
    }


def _preview(start: bytes, size: int) -> dict[str, Any] | None:
    """Return the beginning of a text, or None if the bytes are not text."""
    text = start.decode(errors="replace")
    whole = len(start) == size
    if not whole:
        text = text.rstrip("\ufffd")  # an incomplete character
    if "\0" in text or "\ufffd" in text:
        return None
    return {"text": text, "whole": whole}


# --------------------------------------------------------------------------------------------------------------- traces


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


# -------------------------------------------------------------------------------------------------------------- history


Event = dict[str, Any]


async def history(
    scope: Scope, trace: str, *, last: int | None = None, whole: bool = False, follow: bool = False
) -> AsyncGenerator[str, None]:
    """Yield the lines of all events so far, or of the ``last``; with ``follow``, then those of new events.

    A line has the event's payload, and its fields unless the payload has the same name; a ``whole`` line has the
    payload as a separate member.
    """
    stream, seen = reference(trace), set[bytes]()
    after = (await scope.log_state(EVENTS, stream)).head  # read first, so that no event is between it and the entries
    entries = await read_all(scope, EVENTS, stream)
    after = entries[-1].seq if entries else after

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


# ---------------------------------------------------------------------------------------------------------------- shown


def shown(data: bytes, *, large_bytes: int = LARGE_BYTES) -> Any:
    """Decode a value of the store's codec to readable JSON; truncate it if it is large."""
    return plain(decode(data), large=len(data) > large_bytes)


def shown_items(log: str, entry: Entry) -> list[dict[str, Any]]:
    """Return the items of a log entry, each with its seq and commit time."""
    items = items_of(entry) if log in BURSTS else [decode(entry.data)]
    large = len(entry.data) > LARGE_BYTES
    return [{"seq": entry.seq, "at": when(entry.at), "data": plain(item, large=large)} for item in items]


def reference(text: str) -> str:
    """Return the stored name for a stored name or an id."""
    known = unnamed(text)
    return text if known is None or name(known) == text else name(text)


def original(short: str) -> str:
    """Return the id of a stored name; if the id is too long to be stored, the name."""
    known = unnamed(short)
    return short if known is None else known
