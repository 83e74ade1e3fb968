"""Measures the server: requests, streams and the card, each beside a bare application in the same run."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from benchmarks import idle
from benchmarks.http_load import Rate, answer, get_all, message, post_all, request
from benchmarks.processes import Served, started
from benchmarks.report import Report

CONNECTIONS = 32
CARD = "/.well-known/agent-card.json"


async def run(url: str | None = None, *, quick: bool = False, progress: Callable[[str], None] = print) -> Report:
    """Return all figures of the server."""
    report = Report()
    each = 60 if quick else 300
    with tempfile.TemporaryDirectory() as folder:
        durable = url or f"sqlite:///{folder}/agent.db"
        bare_durable = url or f"sqlite:///{folder}/bare.db"
        await _requests(report, "durable", durable, bare_durable, each, 0.25, progress)
        await _requests(report, "memory", "memory:", "memory:", each, 0.2, progress)
        progress("streaming")
        await _streams(report, f"sqlite:///{folder}/streams.db", chunks=500 if quick else 2000)
        progress("idle streams")
        await _idle(report, f"sqlite:///{folder}/idle.db", count=100 if quick else 1000, seconds=5.0 if quick else 20.0)
        progress("start")
        await _start(report, f"sqlite:///{folder}/start.db")
    return report


async def _requests(
    report: Report, name: str, url: str, bare_url: str, each: int, least: float, progress: Callable[[str], None]
) -> None:
    """Measure both in turn, several times, so that a slow period of the machine affects both."""
    ours: list[Rate] = []
    bare: list[Rate] = []
    cards: list[float] = []
    async with served("agent", url) as agent, served("bare", bare_url) as plain:
        for round_ in range(4):
            progress(f"requests, {name}, round {round_ + 1} of 4")
            for port, rates in ((agent.port, ours), (plain.port, bare)):

                def body(connection: int, number: int, tag: str = f"{round_}-{port}") -> bytes:
                    return message("Hello", f"{tag}-{connection}-{number}")

                rate = await post_all(port, body, connections=CONNECTIONS, each=each)
                if round_ > 0:  # the first round warms up
                    rates.append(rate)
            card = await get_all(agent.port, CARD, connections=8, each=each)
            static = await get_all(plain.port, "/", connections=8, each=each)
            cards.append(card.per_second / static.per_second)
    our_rate, bare_rate = (sum(rate.per_second for rate in rates) / len(rates) for rates in (ours, bare))
    report.note(f"SendMessage, {name}", our_rate, "per second")
    report.note(f"SendMessage, {name}, p99", max(rate.p99 for rate in ours) * 1000, "ms")
    report.note(f"bare application, {name}", bare_rate, "per second")
    report.at_least(f"SendMessage ÷ bare application, {name}", our_rate / bare_rate, "×", least)
    if name == "memory":
        report.at_least("card ÷ static bytes", sorted(cards)[len(cards) // 2], "×", 0.7)


async def _streams(report: Report, url: str, *, chunks: int) -> None:
    async with served("agent", url) as agent:
        await stream(agent.port, "warm-up", 50)
        began = time.perf_counter()
        seen = await stream(agent.port, "stream", chunks)
        took = time.perf_counter() - began
    report.note(f"{chunks} streamed chunks, durable", took, "s")
    report.note("chunks per second", chunks / took, "per second")
    report.at_most("chunks lost", chunks - seen, "", 0)


async def stream(port: int, name: str, chunks: int) -> int:
    """Let the echo agent stream this many chunks; return the number received."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request("POST", "/", message(f"stream {chunks}", name, "SendStreamingMessage")))
    seen = 0
    async with asyncio.timeout(300):
        while line := await reader.readline():
            seen += b'"artifactUpdate"' in line
            if b"TASK_STATE_COMPLETED" in line:
                break
    writer.close()
    return seen


async def _idle(report: Report, url: str, *, count: int, seconds: float) -> None:
    """Measure idle streams, each on a running task."""
    found = await idle.measure(url, count, seconds)
    report.at_most(f"memory of one of {count} idle streams", found.memory / 1024, "kB", 60)
    report.at_most(f"CPU of {count} idle streams", 100 * found.core, "% of a core", 3)


async def _start(report: Report, url: str) -> None:
    async with served("agent", url) as agent:
        reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
        writer.write(request("POST", "/", message("Hello", "first")))
        await answer(reader)
        writer.close()
        report.at_most("from the start to the first response, CPU", agent.cpu_seconds(), "s", 1.0)


def served(kind: str, url: str) -> AbstractAsyncContextManager[Served]:
    """Start a server of this kind (see benchmarks/served.py) in its own process."""
    return started("served", kind, url)
