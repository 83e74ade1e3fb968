"""The figures of the task engine, measured in one run, on SQLite files in a temporary directory and in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import tasks_echo, tasks_many, tasks_stream
from benchmarks.report import Report

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a run."""

    rounds: int
    echoes: int
    chunks: int
    listed: tuple[int, int]
    unfinished: tuple[int, int]


FULL = Counts(5, 6_400, 20_000, (10_000, 1_000_000), (100, 100_000))
QUICK = Counts(3, 1_280, 20_000, (2_000, 50_000), (100, 5_000))


async def run(*, quick: bool = False, progress: Progress = lambda _: None) -> Report:
    """Measure the engine; the names of the figures contain the counts."""
    counts = QUICK if quick else FULL
    report = Report()
    with tempfile.TemporaryDirectory(prefix="keelbolt-bench-") as folder:
        progress("echo tasks beside their commits alone")
        await tasks_echo.measure_rate(report, folder, counts.echoes, counts.rounds)
        progress("echo tasks in memory beside their codec")
        await tasks_echo.measure_cpu(report, counts.echoes, counts.rounds)
        progress("a long stream beside bare appends")
        await tasks_stream.measure(report, folder, counts.chunks, 2 * counts.rounds)
        progress("start-up with many unfinished tasks")
        await tasks_many.measure_start(report, folder, *counts.unfinished, progress)
        progress("lists of many tasks")
        await tasks_many.measure_lists(report, folder, *counts.listed, progress)
    return report
