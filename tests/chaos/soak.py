"""A soak: no faults, a low rate, everything swept. The resources of processes and store must not grow."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chaos.engines import Engine
from tests.chaos.figures import percentile
from tests.chaos.final import Violation
from tests.chaos.history import Histories
from tests.chaos.nemesis import Processes

PACE = 20.0  # factor of the users' pauses
SAMPLE_SECONDS = 5.0
WARM_UP = 0.4  # share of the samples before the first sweep, while caches fill
PROGRAMS = ("agent", "state", "framework")

# The allowed growth of a value over the counted samples: a share of its mean, and a constant.
BOUNDS = {
    "rss_bytes": (0.10, 8_000_000),
    "descriptors": (0.10, 5),
    "connections": (0.10, 5),
    "store_bytes": (0.25, 3_000_000),
    "p99_seconds": (0.50, 0.25),
}

Sample = dict[str, float]


async def watch(processes: Processes, store: Engine, seconds: float) -> list[Sample]:
    """Sample the processes and the store for this time."""
    ends = time.monotonic() + seconds
    samples: list[Sample] = []
    while time.monotonic() < ends:
        await asyncio.sleep(SAMPLE_SECONDS)
        pids = [processes.pids[name] for program in PROGRAMS for name in processes.named(program)]
        samples.append(
            {
                "at": time.monotonic(),
                "rss_bytes": float(sum(map(_rss, pids))),
                "descriptors": float(sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)),
                **await asyncio.to_thread(store.measure),
            }
        )
    return samples


def _rss(pid: int) -> int:
    """Return the private memory of the process, without pages shared with the zygote."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    private = [line.split()[1] for line in lines if line.startswith("Private_")]
    return 1024 * sum(map(int, private))


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


def nothing_grows(samples: list[Sample]) -> Iterator[Violation]:
    """Memory, file descriptors, connections, the size of the store and the p99 do not grow."""
    counted = samples[int(len(samples) * WARM_UP) :]
    for name, (share, constant) in BOUNDS.items():
        values = [sample[name] for sample in counted]
        grown, mean = growth(values), sum(values) / len(values)
        if grown > share * mean + constant:
            shown: list[Any] = [round(value, 3) for value in values[:: max(len(values) // 10, 1)]]
            yield f"{name} grew by {grown:.3g} from a mean of {mean:.3g}", shown
