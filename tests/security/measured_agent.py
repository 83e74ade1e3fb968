"""An agent in its own process that measures itself: `python -m tests.security.measured_agent STORAGE`.

It prints its HTTP port and its gRPC port. A line on standard input starts a new measurement and prints the last one:
the longest time for which the event loop did not run, and the largest rise of the process's memory.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import uvicorn

from keelbolt import A2AServer, AgentCardConfig, CapabilitiesConfig, TaskContext
from tests.integration.server.serving import free_socket

LOOK_SECONDS = 0.005


async def count(ctx: TaskContext) -> None:
    await ctx.complete(f"{len(ctx.message.parts)} parts")


class Measurement:
    """The longest pause of the loop (also in its own CPU time), and the largest resident set, since the last reset."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to the current resident set
        self.pause_seconds = self.cpu_seconds = 0.0
        self._before = _resident("VmRSS")

    def report(self) -> str:
        rise = max(0, _resident("VmHWM") - self._before)
        pauses = {"pause_seconds": round(self.pause_seconds, 4), "cpu_seconds": round(self.cpu_seconds, 4)}
        return json.dumps({**pauses, "rise_bytes": rise})

    async def watch(self) -> None:
        while True:
            began, cpu = time.monotonic(), time.thread_time()
            await asyncio.sleep(LOOK_SECONDS)
            self.pause_seconds = max(self.pause_seconds, time.monotonic() - began - LOOK_SECONDS)
            self.cpu_seconds = max(self.cpu_seconds, time.thread_time() - cpu)


def _resident(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


async def main(storage: str) -> None:
    card = AgentCardConfig(name="Count", description="", capabilities=CapabilitiesConfig(streaming=True))
    with free_socket() as bound:
        grpc_port = bound.getsockname()[1]
    server = A2AServer(worker=count, agent_card=card, storage=storage, grpc_port=grpc_port)
    bound = free_socket()
    host = uvicorn.Server(uvicorn.Config(server.app, http="httptools", log_config=None, access_log=False))
    serving = asyncio.create_task(host.serve([bound]))
    while not host.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    print(bound.getsockname()[1], grpc_port, flush=True)
    measurement = Measurement()
    watching = asyncio.create_task(measurement.watch())
    while await asyncio.to_thread(sys.stdin.readline):
        print(measurement.report(), flush=True)
        measurement.reset()
    watching.cancel()
    host.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
