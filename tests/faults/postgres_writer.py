"""As `writer`, on a PostgreSQL. It ends by itself only if a call fails that had to be answered.

python -m tests.faults.postgres_writer URL NAME NOTES SEED
"""

from __future__ import annotations

import asyncio
import random
import sys

from keelbolt.storage import open_storage
from tests.faults.writer import FAMILIES, Notes, groups, jobs, pairs


async def main(url: str, name: str, notes_path: str, seed: str) -> None:
    dice = random.Random(seed)
    notes = Notes(notes_path)
    async with open_storage(url, declare=FAMILIES) as kernel:
        print("ready", flush=True)
        async with asyncio.TaskGroup() as tasks:
            for number in range(2):
                tasks.create_task(pairs(kernel, notes, f"{name}.{number}", dice))
                tasks.create_task(groups(kernel, notes, f"{name}.{number}", dice))
            tasks.create_task(jobs(kernel, notes, name))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
