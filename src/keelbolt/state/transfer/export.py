"""What there is of a trace, a session or a tenant, line by line, in flat memory.

It is read while others may write: each record and entry is as it was when it was reached.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

from keelbolt.errors import BlobNotFound, StateNotFound
from keelbolt.state.artifacts.record import Kept
from keelbolt.state.codec import decode, encode
from keelbolt.state.families import (
    ARTIFACTS,
    BINDINGS,
    CONTEXTS,
    CONTROLS,
    EVENTS,
    MEMORY,
    PATCHES,
    PLANNER_EVENTS,
    SESSIONS,
    SNAPSHOTS,
    STEERING,
    TASK_ORDER,
    TASKS,
    TRACES,
    TRAJECTORIES,
    UPDATES,
)
from keelbolt.state.inspection.shown import original
from keelbolt.state.names import name
from keelbolt.state.streams import PAGE_BYTES, items_of
from keelbolt.state.transfer.lines import FORMAT, line
from keelbolt.storage import Entry, Query, Scope
from keelbolt.storage.blobs import CHUNK_BYTES

PAGE = 200

Lines = AsyncIterator[bytes]


async def export_trace(scope: Scope, trace_id: str) -> Lines:
    """A trace: its events, its planner's, its trajectories and bindings. Raises StateNotFound."""
    async for found in _whole(_trace(scope, name(trace_id)), {"trace": trace_id}):
        yield found


async def export_session(scope: Scope, session_id: str) -> Lines:
    """A session: its tasks, updates, steering, context, artifacts, the traces that it has trajectories or tasks of, and
    memory whose key names it. Raises StateNotFound.
    """
    async for found in _whole(_session(scope, session_id), {"session": session_id}):
        yield found


async def export_tenant(scope: Scope) -> Lines:
    """Everything that a tenant has. Raises StateNotFound."""
    async for found in _whole(_tenant(scope), {}):
        yield found


async def _whole(parts: Lines, of: dict[str, str]) -> Lines:
    count = 0
    async for found in parts:
        if not count:
            yield line("keelbolt.state", format=FORMAT, of=of)
        count += 1
        yield found
    if not count:
        raise StateNotFound
    yield line("end", lines=count)


# ------------------------------------------------------------------------------------------------------------- parts


async def _trace(scope: Scope, ref: str) -> Lines:
    if (noted := await scope.get(TRACES, ref)) is not None:
        yield line("trace", noted.body, seen=noted.fields.get("seen"))
    trace = decode(noted.body) if noted is not None else original(ref)
    for kind, log in (("event", EVENTS), ("planner_event", PLANNER_EVENTS)):
        async for entry in _entries(scope, log, ref):
            for item in items_of(entry):
                yield line(kind, encode(item), trace=trace)
    for kind, collection in (("trajectory", TRAJECTORIES), ("binding", BINDINGS)):
        async for record in scope.scan(Query(collection, {"trace": ref}, order="saved")):
            yield line(kind, record.body, saved=record.fields.get("saved"))


async def _session(scope: Scope, session_id: str) -> Lines:
    ref = name(session_id)
    async for found in _session_alone(scope, ref):
        yield found
    async for trace in _traces_of(scope, ref):
        async for found in _trace(scope, trace):
            yield found
    async for record in scope.scan(Query(BINDINGS, {"session": ref}, order="saved")):
        yield line("binding", record.body, saved=record.fields.get("saved"))
    async for record in scope.scan(Query(MEMORY, order="saved")):
        if session_id in decode(record.body)["key"].split(":"):
            yield line("memory", record.body, saved=record.fields.get("saved"))
    async for found in _artifacts(scope, Query(ARTIFACTS, {"session": ref}, order="rank")):
        yield found


async def _tenant(scope: Scope) -> Lines:
    async for noted in scope.scan(Query(SESSIONS, order="seen")):
        async for found in _session_alone(scope, noted.key):
            yield found
    async for noted in scope.scan(Query(TRACES, order="seen")):
        async for found in _trace(scope, noted.key):
            yield found
    async for record in scope.scan(Query(MEMORY, order="saved")):
        yield line("memory", record.body, saved=record.fields.get("saved"))
    async for found in _artifacts(scope, Query(ARTIFACTS, order="expires")):
        yield found


async def _session_alone(scope: Scope, ref: str) -> Lines:
    """What belongs to a session and to no trace."""
    if (noted := await scope.get(SESSIONS, ref)) is not None:
        yield line("session", noted.body, seen=noted.fields.get("seen"))
    if (context := await scope.get(CONTEXTS, ref)) is not None:
        yield line("context", context.body, ref=ref, fields=dict(context.fields))
    for kind, collection in (("patch", PATCHES), ("control", CONTROLS)):
        async for record in scope.scan(Query(collection, {"session": ref}, order="arrived")):
            yield line(kind, record.body, ref=record.key, fields=dict(record.fields))
    async for entry in _entries(scope, TASK_ORDER, ref):
        key = f"{ref}/{entry.data.decode()}"
        task, snapshot = await scope.get(TASKS, key), await scope.get(SNAPSHOTS, key)
        if task is not None:
            yield line("task", task.body, context=decode(snapshot.body) if snapshot is not None else None)
    for kind, log in (("update", UPDATES), ("steering", STEERING)):
        async for entry in _entries(scope, log, ref):
            yield line(kind, entry.data)


async def _traces_of(scope: Scope, ref: str) -> AsyncIterator[str]:
    """The names of the traces that a session has trajectories or tasks of."""
    seen: set[str] = set()
    async for record in scope.scan(Query(TRAJECTORIES, {"session": ref}, order="saved")):
        seen.add(record.key.partition("/")[0])
    async for record in scope.scan(Query(TASKS, {"session": ref})):
        trace_id = decode(record.body).get("trace_id")
        if isinstance(trace_id, str):
            seen.add(name(trace_id))
    for trace in sorted(seen):
        yield trace


async def _artifacts(scope: Scope, query: Query) -> Lines:
    """Each with the lines of its bytes after it."""
    async for record in scope.scan(query):
        try:
            reader = await scope.open_blob(Kept.of(record).sha256)
        except BlobNotFound:  # it was deleted meanwhile
            continue
        chunks = -(-reader.size // CHUNK_BYTES)
        times = {"rank": record.fields.get("rank"), "expires": record.fields.get("expires")}
        yield line("artifact", record.body, chunks=chunks, **times)
        async for chunk in reader.chunks():
            yield line("chunk", encode(base64.b64encode(chunk).decode()))


# ------------------------------------------------------------------------------------------------------------ reading


async def _entries(scope: Scope, log: str, stream: str) -> AsyncIterator[Entry]:
    after: int | None = None
    while True:
        page = await scope.read_log(log, stream, after=after, limit=PAGE, max_bytes=PAGE_BYTES)
        for entry in page.entries:
            yield entry
        if not page.entries or page.entries[-1].seq >= page.head:
            return
        after = page.entries[-1].seq
