"""A process that erases a tenant, or sweeps, and is killed at a named point of its n-th commit.

python -m tests.faults.eraser erase FILE saved:3
"""

from __future__ import annotations

import asyncio
import sys

from keelbolt.data import Subject, erase, erasing
from keelbolt.data.sweeping import retain, sweep_expired
from keelbolt.storage.sqlite.engine import SQLiteKernel
from keelbolt.tasks import RetentionPolicy
from keelbolt.testing.crash import CrashPoint

erasing.BATCH = 5  # many commits, and as many places to die


async def main(verb: str, path: str, crash: str) -> None:
    async with SQLiteKernel(path, probe=CrashPoint.parse(crash)) as kernel:
        if verb == "erase":
            await erase(kernel, Subject(kind="tenant", id="gone"))
        else:
            erasing.RESUME_SECONDS = 0.0
            await retain(RetentionPolicy(completed=0.0), kernel)
            await sweep_expired(kernel)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
