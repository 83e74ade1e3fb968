"""Fills a store with data of every family of every face, and searches for remains."""

from __future__ import annotations

import json
import time
from typing import Any

from keelbolt.auth.principal import Principal
from keelbolt.kernel import Append, Draft, Enqueue, Kernel, Put, Scope
from keelbolt.kernel.transfer.rows import TABLES
from keelbolt.state.codec import encode
from keelbolt.state.families import (
    BINDINGS,
    CONTEXTS,
    CONTROLS,
    EVENTS,
    MEMORY,
    PATCHES,
    PAUSES,
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
from keelbolt.state.families import FACE as STATE
from keelbolt.tasks import Envelope, TaskContext, TaskEngine, TaskSettings, families
from keelbolt.tasks.listing import Texts
from keelbolt.turns.durable import durable_storage
from tests.integration.tasks.stage import message
from tests.integration.turns.stage import Calls, Turn, one_of_each
from tests.integration.turns.stage import message as turn_message

FILE_BYTES = 300_000
STAY_BEHIND = ("data_", "state_runs", "state_owners", "state_sweeps", "task_sweeps", "turn_formats")
_IN_AN_HOUR = int((time.time() + 3600) * 1_000_000)


async def fill_tasks(kernel: Kernel, owner: str, *, tenant: str = "", canary: str, context: str = "talk") -> str:
    """Create a task with a file, segments, a message key, a context value and search words. Return its id."""

    async def worker(ctx: TaskContext) -> None:
        await ctx.keep_file(canary.encode() * (FILE_BYTES // len(canary)), filename="canary.txt")
        await ctx.update_context({"canary": canary})
        for number in range(200):
            text = f"{number} {canary} {'x' * 300}"
            await ctx.emit_text_artifact(text, artifact_id="long", append=number > 0)
        await ctx.complete(canary)

    async with TaskEngine(kernel, worker, settings=TaskSettings(drain_seconds=0.0)) as engine:
        envelope = Envelope(Principal(owner=owner, tenant=tenant), key=f"key {canary}")
        sent = await engine.tasks.send(message(canary, context_id=context), envelope)
        task_id = (await engine.tasks.settled(sent)).task_id
        await _search(engine, engine.tasks.scope(envelope.principal), task_id, canary)
        return task_id


async def _search(engine: TaskEngine, scope: Scope, task_id: str, canary: str) -> None:
    """Read the search words of the task, which stores them."""
    record = await scope.get(families.TASKS, task_id)
    assert record is not None
    (words,) = await Texts(engine.store).of(scope, [record])
    assert canary in words
    await engine.kernel.flush()
    kept = await scope.get(families.TEXTS, task_id)
    assert kept is not None
    assert canary.encode() in kept.body


async def fill_turns(kernel: Kernel, tenant: str, thread: str, *, canary: str) -> None:
    """Create a thread with a value of each kind, a deleted message, and bytes without a record."""
    async with durable_storage(kernel, memories="thread", standing_instructions="thread") as storage:
        calls = Calls(storage.callbacks(), Turn(f"turn {canary}", tenant, thread))
        for kind, value in one_of_each():
            await calls.do("store", kind, value)
        await calls.do("store", "message", turn_message("canary", canary))
        await calls.delete_message("m-text")
        await calls.store_media_bytes("staged", canary.encode())


async def fill_state(kernel: Kernel, tenant: str, session: str, *, canary: str) -> None:
    """Create a session with data of every family, and its trace."""
    await kernel.declare(*STATE.collections())
    trace, at = f"trace-of-{session}", 1
    body = encode({"canary": canary, "trace_id": trace})
    of_session: dict[str, Any] = {"session": session}
    await kernel.commit(
        partition_of(tenant),
        Put(SESSIONS, session, encode(session), {"seen": at}),
        Put(TRACES, trace, encode(trace), {"seen": at}),
        Put(CONTEXTS, session, body, {"pending": 0}),
        Put(TASKS, f"{session}/1", body, {**of_session, "saved": at}),
        Put(SNAPSHOTS, f"{session}/1", body, {**of_session, "hash": "h"}),
        Put(PATCHES, f"{session}/1", body, {**of_session, "arrived": "a"}),
        Put(CONTROLS, f"{session}/1", body, {**of_session, "arrived": "a"}),
        Put(TRAJECTORIES, f"{trace}/{session}", body, {**of_session, "trace": trace, "saved": at}),
        Put(BINDINGS, f"{trace}//1", body, {**of_session, "trace": trace, "saved": at}),
        Put(
            MEMORY, f"{tenant}:ada:{session}", encode({"key": f"{tenant}:ada:{session}", "state": canary}), {"saved": 1}
        ),
        Put(PAUSES, "pause-1", encode("no canary"), {"saved": at, "expires": _IN_AN_HOUR}, expires_in=3600.0),
        *(Append(log, session, (Draft("one", body),)) for log in (UPDATES, STEERING)),
        Append(TASK_ORDER, session, (Draft("task", b"1", "1"),)),
        *(Append(log, trace, (Draft("one", body),)) for log in (EVENTS, PLANNER_EVENTS)),
    )


async def run_session(kernel: Kernel, tenant: str, session: str) -> None:
    """Hold a task of the session, like a process that runs it."""
    run = Put(RUNS, f"{session}/1", encode({}), {"session": session, "arrived": "a"})
    await kernel.commit(partition_of(tenant), run, Enqueue(RUNS, run.key, worker="process"))


async def rows_with(kernel: Kernel, *words: str) -> list[str]:
    """Return the rows of the store that contain one of these words, except blobs in their grace period."""
    found: list[str] = []
    async with kernel.transfer().reading() as source:  # type: ignore[attr-defined]
        for table in ("record", "stream", "entry", "work", "holding"):
            async for page in source.pages(table):
                found += [
                    f"{table} {text[:200]}" for text in map(repr, page.rows) if any(word in text for word in words)
                ]
    return found


async def rows_of(kernel: Kernel) -> dict[str, list[Any]]:
    """Return all rows that an export contains, without the times of entries, which an import sets."""
    found: dict[str, list[Any]] = {}
    async with kernel.transfer().reading() as source:  # type: ignore[attr-defined]
        for table in TABLES:
            if table in ("collection", "partition", "blob", "chunk"):
                continue
            rows = [row async for page in source.pages(table) for row in page.rows]
            found[table] = sorted(repr(_comparable(table, row)) for row in rows if not _stays(row))
    return found


def _comparable(table: str, row: Any) -> Any:
    if table == "entry":
        return row._replace(at=0)
    if table == "record":
        fields = json.loads(row.fields) if row.fields else {}
        return row._replace(expires_in=row.expires_in is not None, fields=sorted(fields.items()))
    return row


def _stays(row: Any) -> bool:
    return str(row[1]).startswith(STAY_BEHIND)
