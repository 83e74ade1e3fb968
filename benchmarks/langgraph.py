"""Keelbolt's LangGraph saver beside langgraph-checkpoint-sqlite and langgraph-checkpoint-postgres, in the same run.

A step is the data that LangGraph saves for one step of a graph: the writes of a task, then a checkpoint. All savers
commit durably: an acknowledged checkpoint survives a power loss.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Report

STATE_BYTES = 100_000
SIZE_STEPS = 100
MOST_BYTES = 0.25  # ratio to the peer's bytes, where a node returns a large value that has not changed


@dataclass(frozen=True, slots=True)
class Counts:
    steps: int  # per thread
    threads: int  # concurrent
    long: int  # checkpoints of a long thread
    reads: int


FULL = Counts(steps=200, threads=16, long=10_000, reads=200)
QUICK = Counts(steps=50, threads=8, long=500, reads=50)


@dataclass(slots=True)
class Subject:
    """A saver, and a function that measures its stored bytes."""

    name: str
    peer: bool
    engine: str
    saver: Any
    size: Callable[[], Any]


async def run(*, postgres: str | None = None, quick: bool = False, progress: Callable[[str], None] = print) -> Report:
    counts = QUICK if quick else FULL
    report = Report()
    bytes_of: dict[tuple[str, bool], float] = {}
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="keelbolt-bench-")))
        subjects = [await stack.enter_async_context(each) for each in _subjects(folder, postgres)]
        for subject in subjects:
            progress(f"{subject.name}, {subject.engine}: one thread")
            rate, cpu = await _rate(subject, counts, 1)
            report.note(f"{subject.name}, {subject.engine}: steps of one thread", rate, "/s")
            report.note(f"{subject.name}, {subject.engine}: CPU of a step in this process", cpu, "ms")
        for subject in subjects:
            progress(f"{subject.name}, {subject.engine}: {counts.threads} threads")
            rate, _ = await _rate(subject, counts, counts.threads)
            report.note(f"{subject.name}, {subject.engine}: steps of {counts.threads} threads at once", rate, "/s")
        for subject in subjects:
            progress(f"{subject.name}, {subject.engine}: size")
            unchanged, returned = await _size(subject, changed=False), await _size(subject, changed=True)
            bytes_of[subject.engine, subject.peer] = returned
            about = f"{subject.name}, {subject.engine}: bytes of a step, {STATE_BYTES // 1000} kB state"
            report.note(f"{about} left alone", unchanged, "B")
            report.note(f"{about} returned unchanged by each node", returned, "B")
        for subject in subjects:
            progress(f"{subject.name}, {subject.engine}: a thread of {counts.long:,} checkpoints")
            report.note(
                f"{subject.name}, {subject.engine}: get_tuple at {counts.long:,} checkpoints, p50",
                await _read(subject, counts) * 1000,
                "ms",
            )
    for engine in ("SQLite", "PostgreSQL"):
        if (engine, True) in bytes_of and (engine, False) in bytes_of:
            ratio = bytes_of[engine, False] / bytes_of[engine, True]
            report.at_most(f"{engine}: our bytes ÷ the peer's, returned state", ratio, "×", MOST_BYTES)
    return report


def _subjects(folder: Path, postgres: str | None) -> list[Any]:
    found = [_ours("SQLite", f"sqlite:///{folder}/ours.db", lambda: _files(folder, "ours"))]
    if find_spec("langgraph.checkpoint.sqlite") is not None:
        found.append(_peer_sqlite(folder))
    if postgres is not None:
        found.append(_ours("PostgreSQL", postgres, lambda: _tables(postgres)))
        if find_spec("langgraph.checkpoint.postgres") is not None:
            found.append(_peer_postgres(postgres))
    return found


@contextlib.asynccontextmanager
async def _ours(engine: str, url: str, size: Callable[[], Any]) -> AsyncIterator[Subject]:
    from keelbolt.langgraph import KeelboltSaver

    async with KeelboltSaver(url) as saver:
        yield Subject("ours", False, engine, saver, size)


@contextlib.asynccontextmanager
async def _peer_sqlite(folder: Path) -> AsyncIterator[Subject]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(str(folder / "peer.db")) as saver:
        yield Subject("langgraph-checkpoint-sqlite", True, "SQLite", saver, lambda: _files(folder, "peer"))


@contextlib.asynccontextmanager
async def _peer_postgres(url: str) -> AsyncIterator[Subject]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    async with AsyncPostgresSaver.from_conn_string(url) as saver:
        await saver.setup()
        yield Subject("langgraph-checkpoint-postgres", True, "PostgreSQL", saver, lambda: _tables(url))


async def _files(folder: Path, name: str) -> int:
    def size() -> int:
        return sum(path.stat().st_size for path in (folder / f"{name}.db", folder / f"{name}.db-wal") if path.exists())

    return await asyncio.to_thread(size)


async def _tables(url: str) -> int:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CHECKPOINT")
        size: int = await connection.fetchval(
            "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r' AND relnamespace IN "
            "(SELECT oid FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema')"
        )
        return size
    finally:
        await connection.close()


async def _steps(saver: Any, thread: str, steps: int, document: str, *, changed: bool) -> Any:
    """Save this many steps like LangGraph. With ``changed`` each node returns the document."""
    from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint

    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    checkpoint = empty_checkpoint()
    versions: dict[str, Any] = {}
    for step in range(steps):
        written: dict[str, Any] = {"counter": step}
        if changed or step == 0:
            written["document"] = document
        if step:
            await saver.aput_writes(config, list(written.items()), f"task-{step}", "~path")
        new = {channel: saver.get_next_version(versions.get(channel), None) for channel in written}
        versions = {**versions, **new}
        checkpoint = create_checkpoint(checkpoint, None, step)
        checkpoint["channel_values"] = {"document": document, "counter": step}
        checkpoint["channel_versions"] = dict(versions)
        config = await saver.aput(config, checkpoint, {"source": "loop", "step": step, "parents": {}}, new)
    return config


async def _rate(subject: Subject, counts: Counts, threads: int) -> tuple[float, float]:
    """Return steps per second, and the CPU of a step in milliseconds."""
    await _steps(subject.saver, f"warm-{threads}", 5, "d" * 1000, changed=True)
    began, cpu = time.perf_counter(), time.process_time()
    runs = [
        _steps(subject.saver, f"rate-{threads}-{number}", counts.steps, f"{number}" * 1000, changed=True)
        for number in range(threads)
    ]
    await asyncio.gather(*runs)
    steps = threads * counts.steps
    return steps / (time.perf_counter() - began), (time.process_time() - cpu) * 1000 / steps


async def _size(subject: Subject, *, changed: bool) -> float:
    before = await subject.size()
    document = os.urandom(STATE_BYTES // 2).hex()  # random, so that no engine compresses it away
    await _steps(subject.saver, f"size-{changed}", SIZE_STEPS, document, changed=changed)
    return float(await subject.size() - before) / SIZE_STEPS


async def _read(subject: Subject, counts: Counts) -> float:
    await _steps(subject.saver, "long", counts.long, "d" * 1000, changed=False)
    config: Any = {"configurable": {"thread_id": "long", "checkpoint_ns": ""}}
    times = []
    for _ in range(counts.reads):
        began = time.perf_counter()
        await subject.saver.aget_tuple(config)
        times.append(time.perf_counter() - began)
    return median(times)
