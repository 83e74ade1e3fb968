"""Measures the server: requests, streams and the card, each beside a bare application in the same run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from keelbolt.bench.http_load import Rate, answer, get_all, message, post_all, request
from keelbolt.bench.report import Report

CONNECTIONS = 32
CARD = "/.well-known/agent-card.json"


async def run(url: str | None = None, *, quick: bool = False, progress: Callable[[str], None] = print) -> Report:
    """All figures of the server."""
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
        await _idle(report, f"sqlite:///{folder}/idle.db", count=100 if quick else 1000)
        progress("start")
        await _start(report, f"sqlite:///{folder}/start.db")
    return report


async def _requests(
    report: Report, name: str, url: str, bare_url: str, each: int, least: float, progress: Callable[[str], None]
) -> None:
    """The two in turn, several times: what slows the machine for a while slows both."""
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
        await _stream(agent.port, "warm-up", 50)
        began = time.perf_counter()
        seen = await _stream(agent.port, "stream", chunks)
        took = time.perf_counter() - began
    report.note(f"{chunks} streamed chunks, durable", took, "s")
    report.note("chunks per second", chunks / took, "per second")
    report.at_most("chunks lost", chunks - seen, "", 0)


async def _stream(port: int, name: str, chunks: int) -> int:
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


async def _idle(report: Report, url: str, *, count: int) -> None:
    """Streams on which nothing happens: what each of them costs in memory."""
    async with served("agent", url) as agent:
        await _stream(agent.port, "warm-up", 50)
        before = agent.rss()
        writers = []
        for number in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
            writer.write(request("POST", "/", message("wait", f"idle-{number}", "SendStreamingMessage")))
            async with asyncio.timeout(60):
                await reader.readuntil(b"data:")
            writers.append(writer)
        report.at_most(f"memory of one of {count} idle streams", (agent.rss() - before) / count / 1024, "kB", 60)
        for writer in writers:
            writer.close()


async def _start(report: Report, url: str) -> None:
    async with served("agent", url) as agent:
        reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
        writer.write(request("POST", "/", message("Hello", "first")))
        await answer(reader)
        writer.close()
        report.at_most("from the start to the first answer, CPU", agent.cpu_seconds(), "s", 1.0)


class Served:
    """A process of `keelbolt.bench.served`."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port

    def rss(self) -> int:
        """Bytes of memory that it has."""
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def served(kind: str, url: str) -> AsyncIterator[Served]:
    """A server in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "keelbolt.bench.served", kind, url, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            port = int(await process.stdout.readline())
            while True:  # the port is taken before the server listens
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionRefusedError:
                    await asyncio.sleep(0.02)
                    continue
                writer.close()
                break
        yield Served(process.pid, port)
    finally:
        process.kill()
        await process.wait()
