"""A soak: no faults, a low rate, everything swept. The resources of processes and store must not grow.

The product keeps some data for hours after its removal, whatever the retention is: the bytes of deleted artifacts,
notes about sessions and traces, tombstones. Before these hours have passed, no store is in its steady state. So the
processes of a soak keep such data for a minute. For the same reason their largest caches are small, and the rate is
higher at first: at the low rate, caches would fill for hours.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from keelbolt.data.sweeping import last_sweeps
from keelbolt.kernel import Kernel, Scope
from keelbolt.kernel.redis import server as valkey
from tests.chaos.engines import Engine
from tests.chaos.figures import percentile
from tests.chaos.final import Violation
from tests.chaos.history import Histories
from tests.chaos.nemesis import Processes

SAMPLE_SECONDS = 5.0
WARM_UP = 0.4  # share of the samples that don't count
BUSY = 0.2  # share of the time with a higher rate, in which caches fill
PROGRAMS = ("agent", "state", "framework")
SHORT_SECONDS = 60.0
LIFETIMES = (
    ("keelbolt.kernel.blobs", "STAGED_SECONDS"),  # 1 hour: how long a blob stays after its last holder
    ("keelbolt.kernel.sqlite.rows", "STAGED_SECONDS"),
    ("keelbolt.kernel.postgres.rows", "STAGED_SECONDS"),
    ("keelbolt.state.retention", "NOTED_SECONDS"),  # 2 hours: how long an unused session or trace stays
    ("keelbolt.data.families", "TOMBSTONE_SECONDS"),  # 30 days: how long an erasure is remembered
)
CACHES = (
    ("keelbolt.kernel.sqlite.connection", "CACHE_KIB"),  # 16,000
    ("keelbolt.kernel.sqlite.rows", "KNOWN_KEYS"),  # 5000
    ("keelbolt.kernel.postgres.committer", "KNOWN_PARTITIONS"),  # 100,000
    ("keelbolt.state.store_context", "KNOWN"),  # 4096
    ("keelbolt.state.tasks", "KNOWN"),
)
CACHED = 500
VALKEY_LIFETIME = "local GRACE = {:.0f}\n"  # of a blob on Valkey, in microseconds

# The allowed growth of a value over the counted samples: a share of its mean, and a constant.
BOUNDS = {
    "rss_bytes": (0.10, 8_000_000),
    "descriptors": (0.10, 5),
    "connections": (0.10, 5),
    "store_bytes": (0.25, 3_000_000),
    "p99_seconds": (0.50, 0.25),
}

Sample = dict[str, float]


def shorten_lifetimes() -> None:
    """Shorten the fixed lifetimes of this process, and of its forks, to a minute; limit its caches."""
    for constants, least in ((LIFETIMES, SHORT_SECONDS), (CACHES, CACHED)):
        for module, name in constants:
            names = vars(importlib.import_module(module))
            assert names[name] >= least  # it may be imported from a changed module
            names[name] = least
    Scope.stage_blob.__kwdefaults__ = {"keep_seconds": SHORT_SECONDS}  # a blob stays on Valkey at least so long
    name, source = valkey.library()
    before, after = (VALKEY_LIFETIME.format(seconds * 1e6).encode() for seconds in (3600, SHORT_SECONDS))
    assert before in source
    vars(valkey)["library"] = cache(lambda: (name, source.replace(before, after)))


async def watch(processes: Processes, store: Engine, kernel: Kernel, seconds: float) -> list[Sample]:
    """Sample the processes and the store for this time."""
    ends = time.monotonic() + seconds
    samples: list[Sample] = []
    while time.monotonic() < ends:
        await asyncio.sleep(SAMPLE_SECONDS)
        pids = {program: [processes.pids[name] for name in processes.named(program)] for program in PROGRAMS}
        shared = _rss(processes.zygote)
        rss = {
            f"rss_bytes: {program}": float(sum(_rss(pid) - shared for pid in found)) for program, found in pids.items()
        }
        files = [len(list(Path(f"/proc/{pid}/fd").iterdir())) for found in pids.values() for pid in found]
        samples.append(
            {
                "at": time.monotonic(),
                "rss_bytes": sum(rss.values()),
                "descriptors": float(sum(files)),
                **await asyncio.to_thread(store.measure),
                **rss,
                **await _contents(kernel),
            }
        )
    return samples


async def _contents(kernel: Kernel) -> Sample:
    """Return the numbers of stored items by kind and the ages of the last sweeps, which explain a growing store."""
    stats, sweeps = await kernel.stats(), await last_sweeps(kernel)
    counts = {f"records: {name}": count for name, count in stats.records.items()}
    counts |= {"streams": stats.streams, "entries": stats.entries, "blobs": stats.blobs, "blob_bytes": stats.blob_bytes}
    ages = {f"seconds since the sweep of {name}": time.time() - float(str(last["at"])) for name, last in sweeps.items()}
    return {f"stored {name}": float(count) for name, count in counts.items()} | ages


def _rss(pid: int) -> int:
    """Return the anonymous memory of the process.

    It includes the pages that the process got from the zygote: its first write to one makes it private, but uses no
    more memory than before.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def with_latency(samples: list[Sample], read: Histories) -> list[Sample]:
    """Return the samples, each with the p99 of the requests that were answered in the minute before it."""
    ends = sorted(
        (asked.ended, asked.ended - asked.began)
        for what, found in read.requests.items()
        if what not in ("stream", "send", "cancel", "decision", "answer", "sweep")  # these requests wait for work
        for asked in found
        if asked.answer is not None
    )
    for sample in samples:
        recent = ends[bisect_left(ends, (sample["at"] - 60.0, 0.0)) : bisect_left(ends, (sample["at"], 0.0))]
        sample["p99_seconds"] = percentile(sorted(seconds for _, seconds in recent), 0.99)
    return samples


def growth(values: list[float]) -> float:
    """Return the rise of a linear fit from the first to the last value."""
    middle = (len(values) - 1) / 2
    mean = sum(values) / len(values)
    spread = sum((at - middle) ** 2 for at in range(len(values)))
    slope = sum((at - middle) * (value - mean) for at, value in enumerate(values)) / spread
    return slope * (len(values) - 1)


@dataclass(frozen=True, slots=True)
class Growth:
    """A value over the counted samples: ``grown`` is the rise of its linear fit. Without a bound it only explains."""

    name: str
    values: list[float]
    grown: float
    mean: float
    bound: float | None


def growths(samples: list[Sample]) -> list[Growth]:
    """Return all values of a soak over the samples after warming up."""
    counted = samples[int(len(samples) * WARM_UP) :]
    found: list[Growth] = []
    for name in dict.fromkeys(name for sample in counted for name in sample if name != "at"):
        values = [sample.get(name, 0.0) for sample in counted]
        mean = sum(values) / len(values)
        share, constant = BOUNDS.get(name, (0.0, 0.0))
        bound = share * mean + constant if name in BOUNDS else None
        found.append(Growth(name, values, growth(values), mean, bound))
    return found


def nothing_grows(samples: list[Sample]) -> Iterator[Violation]:
    """Memory, file descriptors, connections, the size of the store and the p99 do not grow.

    A violation shows the parts of the value that grew most.
    """
    found = growths(samples)
    for each in found:
        if each.bound is None or each.grown <= each.bound:
            continue
        parts = sorted((part for part in found if part.name.startswith(f"{each.name}: ")), key=lambda part: -part.grown)
        shown: list[Any] = [round(value, 3) for value in each.values[:: max(len(each.values) // 10, 1)]]
        most: list[Any] = [f"{part.name} by {part.grown:.3g} from a mean of {part.mean:.3g}" for part in parts[:3]]
        yield f"{each.name} grew by {each.grown:.3g} from a mean of {each.mean:.3g}", [shown, *most]
