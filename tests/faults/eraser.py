"""A process that erases a tenant, sweeps, or imports FILE.jsonl, and is killed at a named point of its n-th commit.

python -m tests.faults.eraser erase FILE saved:3
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from keelbolt.data import Subject, erase, erasing, import_export, importing
from keelbolt.data.sweeping import retain, sweep_expired
from keelbolt.kernel.sqlite.engine import SQLiteKernel
from keelbolt.tasks import RetentionPolicy
from keelbolt.testing.crash import CrashPoint

erasing.BATCH = importing.BATCH = 5  # many commits, so that there are many points at which to kill


async def main(verb: str, path: str, crash: str) -> None:
    async with SQLiteKernel(path, probe=CrashPoint.parse(crash)) as kernel:
        if verb == "erase":
            await erase(kernel, Subject(kind="tenant", id="gone"))
        elif verb == "import":
            with Path(f"{path}.jsonl").open("rb") as file:
                await import_export(kernel, file)
        else:
            erasing.RESUME_SECONDS = 0.0
            await retain(RetentionPolicy(completed=0.0), kernel)
            await sweep_expired(kernel)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
