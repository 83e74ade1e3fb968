"""The cost of the largest requests to an agent: the time that each blocks the event loop, and its memory."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from functools import partial

from benchmarks.report import Report
from tests.security import large_requests
from tests.security.measured import Measured, measured_agent

MOST_PAUSE_MS = 250
MOST_TIMES = 10  # memory per byte of the request
SMALL_BYTES = 4 * 1024 * 1024  # a smaller body may take as much memory as one of this size
QUICK = ("empty parts", "data nested 55 deep", "a text with one emoji", "data of 99,000 keys", "600,000 empty parts")


async def run(*, quick: bool = False, progress: Callable[[str], None] = lambda _: None) -> Report:
    """Send each request of the attack suite to an agent on SQLite in another process."""
    return await asyncio.to_thread(_run, quick=quick, progress=progress)


def _run(*, quick: bool, progress: Callable[[str], None]) -> Report:
    report = Report()
    with tempfile.TemporaryDirectory() as folder, measured_agent(f"sqlite:///{folder}/agent.db") as agent:
        for name, make in {**large_requests.REFUSED, **large_requests.ACCEPTED}.items():
            if quick and name not in QUICK:
                continue
            for path, wrapped in large_requests.BINDINGS.items():
                progress(f"{name}, {path}")
                _note(report, agent, f"{name}, {path}", wrapped(make()), partial(agent.post, path))
        for name, make in large_requests.PROTOBUF.items():
            if not quick or name in QUICK:
                _note(report, agent, f"{name}, gRPC", make(), agent.call)
    return report


def _note(report: Report, agent: Measured, name: str, body: bytes, send: Callable[[bytes], object]) -> None:
    body = large_requests.fresh(body)
    agent.report()
    send(body)
    cost = agent.report()
    report.at_most(f"{name}: pause of the loop", 1000 * cost["pause_seconds"], "ms", MOST_PAUSE_MS)
    report.note(f"{name}: CPU of the loop", 1000 * cost["cpu_seconds"], "ms")
    size = max(len(body), SMALL_BYTES)
    report.at_most(f"{name}: memory", cost["rise_bytes"] / size, "× its size", MOST_TIMES)
