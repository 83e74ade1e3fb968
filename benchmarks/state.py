"""The figures of the StateStore, beside the specification's sample stores and penguiflow's own in-memory store."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

from benchmarks.processes import durable_postgres
from benchmarks.report import Report
from benchmarks.state_sample import SamplePostgres, SampleSQLite
from keelbolt.kernel import Append, Draft, Kernel, Query
from keelbolt.state import (
    StateStore,
    StateUpdate,
    StoredEvent,
    TaskContextSnapshot,
    TaskState,
    TaskStatus,
    TaskType,
    UpdateType,
)
from keelbolt.state.codec import decode, encode
from keelbolt.state.families import SNAPSHOTS, TASKS, UPDATES
from keelbolt.state.names import name

Progress = Callable[[str], None]

SMALL, QUICK, LARGE = 1_000, 50_000, 1_000_000
HYDRATED = 1_000
PROGRESS_SAVES = 20
SAVERS = 64


async def run(url: str | None = None, *, quick: bool = False, progress: Progress = lambda _: None) -> Report:
    """Measure on SQLite and, if it is installed, on a new PostgreSQL; with a URL, on that storage."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="keelbolt-bench-") as folder, contextlib.ExitStack() as stack:
        urls = {"SQLite": f"sqlite:///{folder}/state.db"}
        if url is not None:
            urls = {url.partition(":")[0]: url}
        elif (server := durable_postgres(stack)) is not None:
            urls["PostgreSQL"] = server.url
        for engine, at in urls.items():
            await _engine(report, engine, at, folder, quick=quick, progress=progress)
    return report


async def _engine(report: Report, engine: str, url: str, folder: str, *, quick: bool, progress: Progress) -> None:
    rounds = 3 if quick else 5
    progress(f"{engine}: events, beside an INSERT for each")
    await _events(report, engine, url, folder, 500 if quick else 2000, rounds)
    if importlib.util.find_spec("penguiflow") is not None:
        progress(f"{engine}: flows of penguiflow")
        await _flows(report, engine, url, folder, 200 if quick else 500, 2 * rounds)
        progress(f"{engine}: a streamed answer")
        await _stream(report, engine, url, rounds)
    progress(f"{engine}: progress of a task")
    await _progress(report, engine, url)
    progress(f"{engine}: cursors")
    await _cursors(report, engine, url, QUICK if quick else LARGE, progress)
    progress(f"{engine}: opening a session")
    await _hydrate(report, engine, url, rounds)


@contextlib.asynccontextmanager
async def _sample(url: str, folder: str) -> AsyncIterator[SamplePostgres | SampleSQLite | None]:
    """Return the specification's sample for this storage, or None."""
    sample: SamplePostgres | SampleSQLite | None = None
    if url.startswith("sqlite"):
        sample = SampleSQLite(f"{folder}/sample-{uuid4().hex[:8]}.db")
    elif url.startswith("postgres"):
        sample = await SamplePostgres.open(url.partition("?")[0], f"sample_{uuid4().hex[:8]}")
    try:
        yield sample
    finally:
        if sample is not None:
            await sample.close()


# ------------------------------------------------------------------------------------------------------------- events


async def _events(report: Report, engine: str, url: str, folder: str, count: int, rounds: int) -> None:
    """Measure events of 64 concurrent callers, each committed before the next, in turns; compare medians."""
    ours: list[float] = []
    theirs: list[float] = []
    spent: list[float] = []
    their_spent: list[float] = []
    async with StateStore(url, types="own") as store, _sample(url, folder) as sample:
        for number in range(rounds):
            cpu = time.process_time()
            ours.append(await _saved(store, f"ours-{number}", count))
            spent.append((time.process_time() - cpu) / count)
            if sample is not None:
                fewer = max(count // 4, SAVERS)
                cpu = time.process_time()
                theirs.append(await _saved(sample, f"theirs-{number}", fewer))
                their_spent.append((time.process_time() - cpu) / fewer)
    report.note(f"{engine}: events committed, {SAVERS} savers", statistics.median(ours), "/s")
    report.note(f"{engine}: CPU of this process for each event", 1e6 * statistics.median(spent), "µs")
    if theirs:
        report.note(f"{engine}: an INSERT for each event", statistics.median(theirs), "/s")
        cpu_ratio = statistics.median(their_spent) / statistics.median(spent)
        report.note(f"{engine}: CPU of an INSERT for each ÷ ours", cpu_ratio, "×")
        ratio = statistics.median(ours) / statistics.median(theirs)
        report.at_least(f"{engine}: events ÷ an INSERT for each", ratio, "×", 5)


async def _saved(store: Any, trace: str, count: int) -> float:
    payload = {"latency_ms": 1.25, "message": "x" * 200, "queue_depth_in": 0}
    each = max(count // SAVERS, 1)

    async def saver(first: int) -> None:
        for number in range(first, first + each):
            await store.save_event(StoredEvent(trace, float(number), "node_success", "node", "node_1", payload))

    began = time.perf_counter()
    await asyncio.gather(*(saver(number * each) for number in range(SAVERS)))
    return SAVERS * each / (time.perf_counter() - began)


async def _flows(report: Report, engine: str, url: str, folder: str, count: int, rounds: int) -> None:
    """Measure a message through five nodes (ten events), with each store in turns; compare the fastest rounds.

    Keelbolt's store is measured committed and with write-behind; both include the commit of the round's last event.
    """
    from penguiflow.state.in_memory import InMemoryStateStore

    from benchmarks.state_agents import flow_on, messages

    times: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    async with (
        StateStore(url) as committed,
        StateStore(url, write_behind=True) as gathered,
        _sample(url, folder) as sample,
    ):
        stores: dict[str, Any] = {
            "penguiflow's store in memory": InMemoryStateStore(),
            "ours, write-behind": gathered,
            "ours, committed": committed,
        }
        if sample is not None:
            stores["an INSERT for each event"] = sample
        for number in range(rounds + 1):
            for which, store in stores.items():
                sent = count // 5 if store in (sample, committed) else count
                async with flow_on(store) as flow:
                    began, cpu = time.perf_counter(), time.process_time()
                    await messages(flow, sent)
                    if store is gathered:
                        await gathered.flush()
                    each, cpu_each = (time.perf_counter() - began) / sent, (time.process_time() - cpu) / sent
                if number:  # the first round warms up
                    times.setdefault(which, []).append(1000 * each)
                    spent.setdefault(which, []).append(1000 * cpu_each)
    for which, measured in times.items():
        report.note(f"{engine}: a run of five nodes, {which}", min(measured), "ms")
        report.note(f"{engine}: a run of five nodes, {which}, CPU", min(spent[which]), "ms")
    memory, *mine = (min(measured) for measured in list(times.values())[:3])
    memory_cpu, gathered_cpu, committed_cpu = (min(measured) for measured in list(spent.values())[:3])
    report.at_most(f"{engine}: a run of five nodes, write-behind ÷ in memory, CPU", gathered_cpu / memory_cpu, "×", 1.3)
    report.note(f"{engine}: a run of five nodes, write-behind ÷ in memory", mine[0] / memory, "×")
    report.note(f"{engine}: a run of five nodes, committed ÷ in memory", mine[1] / memory, "×")
    report.note(f"{engine}: a run of five nodes, committed ÷ in memory, CPU", committed_cpu / memory_cpu, "×")


async def _stream(report: Report, engine: str, url: str, rounds: int) -> None:
    """Measure an answer of 500 chunks: with the store, until it is stored completely, and without a store."""
    from benchmarks.state_agents import streamed

    async with StateStore(url, write_behind=True) as store:
        times: dict[bool, list[float]] = {True: [], False: []}
        for number in range(rounds):
            for kept in (False, True):
                times[kept].append(await streamed(store if kept else None, f"stream-{number}"))
        found = len(await store.list_planner_events("stream-0"))
    alone, kept_too = statistics.median(times[False]), statistics.median(times[True])
    report.note(f"{engine}: planner events of a streamed answer", found, "")
    report.note(f"{engine}: a streamed answer, not stored", 1000 * alone, "ms")
    report.at_most(f"{engine}: a streamed answer, stored", 100 * (kept_too / alone - 1), "% more", 10)


# ----------------------------------------------------------------------------------------------------------- sessions


def _task(number: int, session: str, context: dict[str, Any]) -> TaskState:
    snapshot = TaskContextSnapshot(session_id=session, task_id=f"task-{number}", llm_context=context)
    return TaskState(
        task_id=f"task-{number}",
        session_id=session,
        status=TaskStatus.RUNNING,
        task_type=TaskType.BACKGROUND,
        priority=0,
        context_snapshot=snapshot,
        description="A task of a session",
    )


async def _progress(report: Report, engine: str, url: str) -> None:
    """Measure the writes of a task's context while it reports progress."""
    async with StateStore(url, types="own") as store:
        session = f"progress-{uuid4().hex[:8]}"
        task = _task(1, session, {"text": "x" * 100_000})
        for step in range(PROGRESS_SAVES + 1):
            task.progress = {"step": step}
            await store.save_task(task)
        key = f"{name(session)}/{name('task-1')}"
        record = await store.host.ask(lambda kernel: kernel.get(store.partition, SNAPSHOTS, key))
    written = record.version if record is not None else 0
    report.at_most(f"{engine}: a context written while its task progressed 20 times", written, "×", 1)


async def _cursors(report: Report, engine: str, url: str, large: int, progress: Progress) -> None:
    """Measure a page of updates after a cursor in the middle of a short and a long session, in turns."""
    async with StateStore(url, types="own") as store:
        sessions = {count: f"updates-{uuid4().hex[:8]}-{count}" for count in (SMALL, large)}
        for count, session in sessions.items():
            await _fill(store, session, count, progress)
        times: dict[int, list[float]] = {count: [] for count in sessions}
        for number in range(41):
            for count, session in sessions.items():
                began = time.perf_counter()
                page = await store.list_updates(session, since_id=f"{session}-{count // 2 + number}", limit=100)
                times[count].append(time.perf_counter() - began)
                assert len(page) == 100
    short, long = (1000 * statistics.median(times[count]) for count in sessions)
    report.note(f"{engine}: 100 updates after a cursor, of {SMALL:,}", short, "ms")
    report.note(f"{engine}: 100 updates after a cursor, of {large:,}", long, "ms")
    report.at_most(f"{engine}: the same, of {large:,} ÷ of {SMALL:,}", long / short, "×", 2)


async def _fill(store: StateStore, session: str, count: int, progress: Progress) -> None:
    """Write this many updates in the store's format, in large commits."""
    update = StateUpdate(
        session_id=session, task_id="task", update_type=UpdateType.PROGRESS, update_id="", content={"step": 1}
    )
    before, after = encode(update.model_dump()).split(b'"update_id":""')

    async def fill(kernel: Kernel) -> None:
        for start in range(0, count, 2000):
            ids = [f"{session}-{number}" for number in range(start, min(start + 2000, count))]
            drafts = tuple(
                Draft("task", b'%b"update_id":"%b"%b' % (before, id_.encode(), after), name(id_)) for id_ in ids
            )
            await kernel.commit(store.partition, Append(UPDATES, name(session), drafts))
            if start % 50_000 == 0:
                progress(f"cursors: {start:,} of {count:,} updates")

    await store.host.ask(fill)


async def _hydrate(report: Report, engine: str, url: str, rounds: int) -> None:
    """Measure opening a session of 1,000 tasks, and decoding the same tasks from their stored bytes."""
    from keelbolt.state.sessions import StreamingSession

    async with StateStore(url, types="own") as store:
        session = f"hydrated-{uuid4().hex[:8]}"
        context = {"messages": [{"role": "user", "content": "x" * 60}] * 10}
        tasks = [_task(number, session, context) for number in range(HYDRATED)]
        for task in tasks:
            task.update_status(TaskStatus.COMPLETE)
        await asyncio.gather(*map(store.save_task, tasks))

        async def stored(kernel: Kernel) -> list[tuple[bytes, bytes]]:
            found: list[list[bytes]] = []
            for collection in (TASKS, SNAPSHOTS):
                page = await kernel.find(store.partition, Query(collection, {"session": name(session)}), limit=HYDRATED)
                found.append([record.body for record in page.records])
            return list(zip(*found, strict=True))

        bodies = await store.host.ask(stored)
        decoding: list[float] = []
        hydrating: list[float] = []
        for _ in range(rounds + 2):
            began = time.perf_counter()
            for body, snapshot in bodies:
                made = store.types.make("TaskContextSnapshot", decode(snapshot))
                store.types.make("TaskState", {**decode(body), "context_snapshot": made})
            decoding.append(time.perf_counter() - began)
            opened = StreamingSession(session, state_store=store)
            began = time.perf_counter()
            await opened.hydrate()
            hydrating.append(time.perf_counter() - began)
            await opened.close()
    decode_ms, hydrate_ms = 1000 * statistics.median(decoding), 1000 * statistics.median(hydrating)
    report.note(f"{engine}: decoding {HYDRATED:,} tasks", decode_ms, "ms")
    report.note(f"{engine}: opening a session of {HYDRATED:,} tasks", hydrate_ms, "ms")
    report.at_most(f"{engine}: opening ÷ decoding", hydrate_ms / decode_ms, "×", 3)
