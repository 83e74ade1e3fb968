"""A process that stops itself at a point of a commit.

    python -m tests.faults.stopper PATH POINT

It prints "ready", then commits, and prints "committed" after it was continued.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from keelbolt.kernel import Append, Draft
from keelbolt.kernel.sqlite import SQLiteKernel
from keelbolt.testing.crash import CrashPoint
from tests.faults.holder import FAMILIES, PARTITION


class Armed:
    """Passes every point until the process is ready."""

    def __init__(self, point: str) -> None:
        self._crash = CrashPoint(point, with_signal=signal.SIGSTOP)
        self.ready = False

    def __call__(self, point: str) -> None:
        if self.ready:
            self._crash(point)


async def main(path: str, point: str) -> None:
    probe = Armed(point)
    async with SQLiteKernel(path, declare=FAMILIES, probe=probe) as kernel:
        await kernel.flush()
        probe.ready = True
        print("ready", flush=True)
        await kernel.commit(PARTITION, Append("events", "stopped", (Draft("a", b""),)))
        print("committed", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
