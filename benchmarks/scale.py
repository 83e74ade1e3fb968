"""An echo agent served by one process and by several: the CPU of a request, with that of the database.

The load generator is this process. Rounds with one and with several processes alternate, and medians are compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from uuid import uuid4

from benchmarks.http_load import Rate, message, post_for
from benchmarks.processes import cpu_seconds_of, durable_postgres
from benchmarks.report import Report
from keelbolt.testing.postgres import OwnPostgres

AGENT = "async def worker(ctx):\n    return ctx.user_text\n"
EXPECTED = b"TASK_STATE_COMPLETED"
CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class Counts:
    rounds: int
    seconds: float


FULL = Counts(rounds=3, seconds=4.0)
QUICK = Counts(rounds=1, seconds=1.5)


@dataclass(slots=True)
class Cost:
    """What requests cost with one number of processes, a value for each round."""

    agent: list[float] = field(default_factory=list)  # milliseconds of CPU
    database: list[float] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)

    @property
    def cpu(self) -> float:
        return median(map(sum, zip(self.agent, self.database, strict=True)))


async def run(*, quick: bool = False, progress: Callable[[str], None] = print) -> Report:
    """Measure on SQLite and, if it is installed, on a new PostgreSQL."""
    report = Report()
    counts = QUICK if quick else FULL
    with contextlib.ExitStack() as stack:
        await _engine(report, "SQLite", 3, 1.15, counts, None, progress)
        server = durable_postgres(stack)
        if server is not None:
            await _engine(report, "PostgreSQL", 4, 1.2, counts, server, progress)
    return report


async def _engine(
    report: Report,
    engine: str,
    several: int,
    most: float,
    counts: Counts,
    server: OwnPostgres | None,
    progress: Callable[[str], None],
) -> None:
    costs = {1: Cost(), several: Cost()}
    for round_ in range(counts.rounds):
        for number, cost in costs.items():
            progress(f"round {round_ + 1} of {counts.rounds}: {engine}, processes: {number}")
            await _round(cost, number, counts.seconds, server)
    for number, cost in costs.items():
        name = f"{engine}, processes: {number}"
        report.note(f"{name}: requests", median(rate.per_second for rate in cost.rates), "/s")
        report.note(f"{name}: CPU of a request", median(cost.agent), "ms")
        if server is not None:
            report.note(f"{name}: CPU of the database for a request", median(cost.database), "ms")
        report.note(f"{name}: p99", median(rate.p99 for rate in cost.rates) * 1000, "ms")
    ratio = costs[several].cpu / costs[1].cpu
    report.at_most(f"{engine}: CPU of a request with {several} processes ÷ with one", ratio, "×", most)


async def _round(cost: Cost, processes: int, seconds: float, server: OwnPostgres | None) -> None:
    with tempfile.TemporaryDirectory(prefix="keelbolt-bench-") as folder:
        url = f"sqlite:///{folder}/agent.db" if server is None else server.create_database()
        async with _served(folder, url, processes) as (pid, port):

            async def load(seconds: float) -> Rate:
                unique = uuid4().hex
                return await post_for(
                    port,
                    lambda connection, number: message("hello", f"{unique}-{connection}-{number}"),
                    connections=CONNECTIONS,
                    seconds=seconds,
                    expected=EXPECTED,
                )

            await load(seconds / 3)  # warms up
            agent, database = cpu_seconds_of(pid), _database(server)
            rate = await load(seconds)
            await asyncio.sleep(0.2)  # what a request leaves to be done later belongs to its cost
            cost.agent.append((cpu_seconds_of(pid) - agent) * 1000 / rate.count)
            cost.database.append((_database(server) - database) * 1000 / rate.count)
            cost.rates.append(rate)


def _database(server: OwnPostgres | None) -> float:
    return 0.0 if server is None or server.pid is None else cpu_seconds_of(server.pid)


@contextlib.asynccontextmanager
async def _served(folder: str, url: str, processes: int) -> AsyncIterator[tuple[int, int]]:
    """The agent of `keelbolt serve` with this number of processes: the pid of the first and the port."""
    (Path(folder) / "bench_agent.py").write_text(AGENT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ("serve", "bench_agent:worker", "--port", str(port), "--processes", str(processes), "--storage", url)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "keelbolt", *arguments, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    await post_for(
                        port,
                        lambda *_: message("hello", uuid4().hex),
                        connections=2 * processes,
                        seconds=0,
                        expected=EXPECTED,
                    )
                except (OSError, asyncio.IncompleteReadError):
                    if process.returncode is not None:
                        raise RuntimeError(f"keelbolt {' '.join(arguments)} exited before it served") from None
                    await asyncio.sleep(0.1)
                    continue
                break
        yield process.pid, port
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
