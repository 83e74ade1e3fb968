"""The figures of the client: a call beside a bare one with the same HTTP library and JSON, a stream, the import."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx2

from benchmarks.http_load import message
from benchmarks.report import Report
from benchmarks.server import served
from keelbolt.client import A2AClient

Progress = Callable[[str], None]

IMPORTS = ("import keelbolt.client", "from keelbolt.client import A2AClient")


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of one call."""

    seconds: float
    cpu_seconds: float  # CPU of this process; the agent runs in another one


async def run(*, quick: bool = False, progress: Progress = lambda _: None) -> Report:
    """Return all figures of the client."""
    report = Report()
    calls, rounds = (100, 5) if quick else (400, 9)
    async with served("agent", "memory:") as agent:
        url = f"http://127.0.0.1:{agent.port}"
        async with A2AClient(url) as client, httpx2.AsyncClient() as bare:
            await _calls(report, client, Bare(bare, url), calls, rounds, progress)
            progress("a stream")
            await _stream(report, client, 500 if quick else 5000)
    progress("the import")
    _imports(report, 5 if quick else 15)
    return report


class Bare:
    """The minimal client: a POST with JSON, and the JSON of its response."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http = http
        self._url = f"{url}/"
        self._ids = count()

    async def send(self) -> str:
        found = await self.call(json.loads(message("Hello", f"bare-{next(self._ids)}")))
        task_id: str = found["result"]["task"]["id"]
        return task_id

    async def get(self, task_id: str) -> None:
        await self.call({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task_id}})

    async def call(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._http.post(self._url, json=body, headers={"A2A-Version": "1.0"})
        found: dict[str, Any] = answer.json()
        return found


async def _calls(report: Report, client: A2AClient, bare: Bare, calls: int, rounds: int, progress: Progress) -> None:
    """Measure both in turn, several times, so that a slow period of the machine affects both."""
    task_id = await bare.send()
    pairs: dict[str, tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]] = {
        "SendMessage": (lambda: client.send_message("Hello"), bare.send),
        "GetTask": (lambda: client.get_task(task_id), lambda: bare.get(task_id)),
    }
    for name, (ours, theirs) in pairs.items():
        wall: list[float] = []
        cpu: list[float] = []
        our_times: list[float] = []
        for round_ in range(rounds):
            progress(f"{name}, round {round_ + 1} of {rounds}")
            mine, other = await _spent(ours, calls), await _spent(theirs, calls)
            if round_ > 0:  # the first round warms up
                wall.append(mine.seconds / other.seconds)
                cpu.append(mine.cpu_seconds / other.cpu_seconds)
                our_times.append(mine.seconds)
        report.note(f"{name}, a call", statistics.median(our_times) * 1e6, "µs")
        report.at_most(f"{name} ÷ bare call with JSON", statistics.median(wall), "×", 1.5)
        report.at_most(f"{name} ÷ bare call with JSON, CPU of the client", statistics.median(cpu), "×", 1.5)


async def _spent(call: Callable[[], Awaitable[object]], calls: int) -> Spent:
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        await call()
    return Spent((time.perf_counter() - began) / calls, (time.process_time() - cpu) / calls)


async def _stream(report: Report, client: A2AClient, chunks: int) -> None:
    began, cpu = time.perf_counter(), time.process_time()
    seen = 0
    async with asyncio.timeout(300):
        async for event in client.stream_message(f"stream {chunks}"):
            seen += event.artifact is not None
    report.note(f"stream of {chunks} chunks", seen / (time.perf_counter() - began), "per second")
    report.note("an event, CPU of the client", (time.process_time() - cpu) / chunks * 1e6, "µs")
    report.at_most("chunks lost", chunks - seen, "", 0)


def _imports(report: Report, times: int) -> None:
    """Return the minimum of several runs, to exclude other load on the machine."""
    program = "import time; at = time.process_time(); {}; print(time.process_time() - at)"
    for statement in IMPORTS:
        command = [sys.executable, "-c", program.format(statement)]
        spent = [float(subprocess.check_output(command, env=os.environ)) for _ in range(times)]
        if statement == IMPORTS[0]:
            report.at_most(f"{statement}, CPU", min(spent) * 1000, "ms", 150)
        else:
            report.note(f"{statement}, CPU", min(spent) * 1000, "ms")
