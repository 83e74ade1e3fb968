"""An agent in its own process: `python -m tests.integration.server.process --port P --storage URL`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx2

from keelbolt.server.settings import ServerSettings
from keelbolt.tasks.settings import TaskSettings
from tests.integration.server.actor import agent
from tests.integration.server.serving import free_socket

ROOT = Path(__file__).parents[3]


@dataclass(slots=True)
class Running:
    """A running agent process."""

    url: str
    child: asyncio.subprocess.Process

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, timeout=20)

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop the process; return its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.child.send_signal(number)
        return await self.child.wait()


@contextlib.asynccontextmanager
async def running(storage: str, **environment: str) -> AsyncIterator[Running]:
    """Start a process that serves the agent of `actor`."""
    with free_socket() as bound:
        port = bound.getsockname()[1]
    command = [sys.executable, "-m", "tests.integration.server.process", "--port", str(port), "--storage", storage]
    child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env={**os.environ, **environment})
    found = Running(f"http://127.0.0.1:{port}", child)
    try:
        async with found.client() as client, asyncio.timeout(30):
            while True:
                with contextlib.suppress(httpx2.HTTPError):
                    if (await client.get("/ready")).status_code == 200:
                        break
                assert child.returncode is None
                await asyncio.sleep(0.02)
        yield found
    finally:
        if child.returncode is None:
            await found.stop(signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--storage", required=True)
    given = parser.parse_args()
    agent(given.storage, settings=ServerSettings.of(), task_settings=TaskSettings.of()).run(port=given.port)


if __name__ == "__main__":
    main()
