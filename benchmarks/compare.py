"""Keelbolt's echo agent beside the floor, the least code for the same work on the same parts (benchmarks/floor.py).

Each server is one process on loopback; the load generator is this process. Rounds are interleaved over the servers, and
medians are compared, so that a slow period of the machine affects all of them.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from uuid import uuid4

from benchmarks.http_load import Rate, message, post_for
from benchmarks.processes import Served, started
from benchmarks.report import Report
from benchmarks.server import stream

LEAST_RATE = {"memory": 0.20, "SQLite": 0.22}  # ratio to the floor's requests per second
MOST_CPU = {"memory": 5.5, "SQLite": 4.5}  # ratio to the floor's CPU per request
EXPECTED = b"TASK_STATE_COMPLETED"


@dataclass(frozen=True, slots=True)
class Counts:
    rounds: int
    seconds: float  # length of a round
    connections: int
    chunks: int


FULL = Counts(rounds=5, seconds=3.0, connections=32, chunks=8000)
QUICK = Counts(rounds=3, seconds=1.0, connections=32, chunks=8000)


@dataclass(slots=True)
class Subject:
    """A server and its measurements, one of each kind for each round."""

    name: str
    engine: str
    server: Served
    rates: list[Rate] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)  # milliseconds for each request
    stream_seconds: float = 0.0
    lost: int = 0

    @property
    def per_second(self) -> float:
        return median(rate.per_second for rate in self.rates)

    @property
    def cpu(self) -> float:
        return median(self.cpus)


async def run(
    *,
    postgres: str | None = None,
    redis: str | None = None,
    quick: bool = False,
    progress: Callable[[str], None] = print,
) -> Report:
    """Measure the floor and the agent in memory and on SQLite, and the agent on the other given engines."""
    counts = QUICK if quick else FULL
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="keelbolt-bench-"))
        programs = [
            ("floor", "memory", ("floor", "memory:")),
            ("floor", "SQLite", ("floor", f"sqlite:///{folder}/floor.db")),
            ("agent", "memory", ("served", "echo", "memory:")),
            ("agent", "SQLite", ("served", "echo", f"sqlite:///{folder}/agent.db")),
        ]
        for engine, url in (("PostgreSQL", postgres), ("Redis", redis)):
            if url is not None:
                programs.append(("agent", engine, ("served", "echo", url)))
        subjects = [
            Subject(name, engine, await stack.enter_async_context(started(*command)))
            for name, engine, command in programs
        ]
        await _measure(subjects, counts, progress)
    report = Report()
    floors = {subject.engine: subject for subject in subjects if subject.name == "floor"}
    for subject in subjects:
        _report(report, subject, floors.get(subject.engine, floors["SQLite"]), counts)
    return report


async def _measure(subjects: list[Subject], counts: Counts, progress: Callable[[str], None]) -> None:
    unique = uuid4().hex  # a database may still have the message ids of an earlier run
    for round_ in range(counts.rounds + 1):
        for subject in subjects:
            progress(f"round {round_} of {counts.rounds}: {subject.name}, {subject.engine}")

            def body(connection: int, number: int, tag: str = f"{unique}-{round_}") -> bytes:
                return message("hello", f"{tag}-{connection}-{number}")

            before = subject.server.cpu_seconds()
            rate = await post_for(
                subject.server.port,
                body,
                connections=counts.connections,
                seconds=counts.seconds,
                expected=EXPECTED,
            )
            if round_ > 0:  # the first round warms up
                subject.rates.append(rate)
                subject.cpus.append((subject.server.cpu_seconds() - before) * 1000 / rate.count)
    for subject in subjects:
        if subject.name == "agent":
            progress(f"a stream: {subject.engine}")
            began = time.perf_counter()
            arrived = await stream(subject.server.port, f"{unique}-stream", counts.chunks)
            subject.stream_seconds = time.perf_counter() - began
            subject.lost = counts.chunks - arrived


def _report(report: Report, subject: Subject, floor: Subject, counts: Counts) -> None:
    name = f"{subject.name}, {subject.engine}"
    report.note(f"{name}: requests", subject.per_second, "/s")
    report.note(f"{name}: CPU of a request", subject.cpu, "ms")
    report.note(f"{name}: p99", median(rate.p99 for rate in subject.rates) * 1000, "ms")
    if subject is floor:
        return
    rate, cpu = subject.per_second / floor.per_second, subject.cpu / max(floor.cpu, 1e-6)  # no tick of the CPU clock: 0
    if subject.engine in LEAST_RATE:
        report.at_least(f"{name}: requests ÷ the floor's", rate, "×", LEAST_RATE[subject.engine])
        report.at_most(f"{name}: CPU ÷ the floor's", cpu, "×", MOST_CPU[subject.engine])
    else:
        report.note(f"{name}: requests ÷ the SQLite floor's", rate, "×")
        report.note(f"{name}: CPU ÷ the SQLite floor's", cpu, "×")
    report.note(f"{name}: {counts.chunks:,} streamed chunks", subject.stream_seconds, "s")
    report.at_most(f"{name}: chunks lost", subject.lost, "", 0)
