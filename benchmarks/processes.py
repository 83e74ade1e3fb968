"""Programs of this package, each in its own process, from any working directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from keelbolt.errors import KeelboltError
from keelbolt.testing.postgres import OwnPostgres, own_postgres

ROOT = Path(__file__).parents[1]

# A child finds `benchmarks` by PYTHONPATH. Its working directory stays the caller's: SQLite URLs may be relative to it.
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}


def program(name: str, *arguments: str) -> list[str]:
    """Return the command that runs ``benchmarks.NAME``; start it with ENVIRONMENT."""
    return [sys.executable, "-m", f"benchmarks.{name}", *arguments]


class Served:
    """A process that serves HTTP on loopback."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port

    def rss(self) -> int:
        """Bytes of resident memory."""
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """CPU time that the process and its children have used, all threads together."""
        return cpu_seconds_of(self.pid)


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU time of a process and of its descendants; on Linux also of those that have ended."""
    if sys.platform != "linux":
        listed = subprocess.check_output(["/bin/ps", "-A", "-o", "pid=,ppid=,cputime="], text=True).splitlines()
        return _of_tree(
            pid, [(int(each), int(parent), _seconds(clock)) for each, parent, clock in map(str.split, listed)]
        )
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it has ended
        return 0.0
    used = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # its own, and that of ended children
    return used + sum(cpu_seconds_of(int(child)) for found in children for child in found)


def _of_tree(pid: int, listed: list[tuple[int, int, float]]) -> float:
    return sum(
        seconds + sum(_of_tree(child, listed) for child, parent, _ in listed if parent == pid)
        for each, _, seconds in listed
        if each == pid
    )


def _seconds(clock: str) -> float:
    """Seconds of the time that ps prints: [[days-]hours:]minutes:seconds."""
    days, _, rest = clock.strip().rpartition("-")
    total = 0.0
    for part in rest.split(":"):
        total = total * 60 + float(part)
    return total + int(days or 0) * 86_400


@contextlib.asynccontextmanager
async def started(name: str, *arguments: str) -> AsyncIterator[Served]:
    """The server ``benchmarks.NAME``, which prints its port; killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *program(name, *arguments), env=ENVIRONMENT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
            if not line:
                raise RuntimeError(f"benchmarks.{name} {' '.join(arguments)} exited before it served")
            port = int(line)
            while True:  # some programs print the port before they listen
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionRefusedError:
                    await asyncio.sleep(0.02)
                    continue
                writer.close()
                break
        yield Served(process.pid, port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def durable_postgres(stack: contextlib.ExitStack) -> OwnPostgres | None:
    """Start a PostgreSQL that writes each commit to the disk; None if it is not installed."""
    try:
        return stack.enter_context(own_postgres(settings={"fsync": "on", "synchronous_commit": "on"}))
    except (KeelboltError, OSError, RuntimeError):
        return None
