"""The figures of copies: the rate from SQLite to another engine; writers are stopped meanwhile."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

from benchmarks.load import CHUNK
from benchmarks.report import Report
from keelbolt.kernel import Append, Collection, Draft, Index, Insert, Kernel, new_id, open_storage
from keelbolt.kernel.copies import CopyProgress, backup_storage, copy_storage

Tell = Callable[[str], None]

NOTES = Collection("bench-note", fields={"state": str, "at": int}, indexes=(Index("by_state", ("state",), "at"),))
TARGET = 20_000  # records and entries per second
STEP = 500


async def run(url: str | None, *, quick: bool = False, progress: Tell = lambda _: None) -> Report:
    """Copy a SQLite store into the empty storage at this URL (None: into another SQLite file)."""
    count = 20_000 if quick else 200_000
    report = Report()
    with tempfile.TemporaryDirectory(prefix="keelbolt-bench-") as folder:
        async with open_storage(f"sqlite:///{folder}/source.db", declare=[NOTES]) as source:
            progress(f"writing {count:,} records and {count:,} log entries")
            await _fill(source, count)
            progress("copying")
            await _copy(report, source, url or f"sqlite:///{folder}/copy.db")
            progress("a backup")
            await _backup(report, source, f"{folder}/backup")
    return report


async def _fill(kernel: Kernel, count: int) -> None:
    for first in range(0, count, STEP):
        numbers = range(first, first + STEP)
        inserts = [Insert("bench-note", new_id(), CHUNK, {"state": "open", "at": at}) for at in numbers]
        stream = f"s{first // STEP % 20}"
        await kernel.commit("bench/copy", *inserts)
        await kernel.commit("bench/copy", Append("bench-log", stream, (Draft("chunk", CHUNK),) * STEP))


async def _copy(report: Report, source: Kernel, url: str) -> None:
    written_at = 0.0

    def tell(step: CopyProgress) -> None:
        nonlocal written_at
        if step.phase == "copy":
            written_at = time.perf_counter()

    async with open_storage(url) as destination:
        start = time.perf_counter()
        copied = await copy_storage(source, destination, keep_source=True, tell=tell)
    engine = url.split(":", 1)[0]
    rows = copied.rows
    report.at_least(f"records and entries copied, sqlite → {engine}", rows / (written_at - start), "/s", TARGET)
    report.note("the same, read back and verified", rows / copied.seconds, "/s")


async def _backup(report: Report, source: Kernel, file: str) -> None:
    native = await backup_storage(source, f"{file}.db")
    report.note("a SQLite backup, checked", native.rows / native.seconds, "rows/s")
    portable = await backup_storage(source, f"{file}.portable", portable=True)
    report.note("a portable backup, checked", portable.rows / portable.seconds, "rows/s")
