"""A process with a wall clock of its own that tries to get hold of what is not yet its.

    python -m tests.faults.prober PATH NAME

It says its wall clock, then, for every line it is sent, what it could claim and whether it sees the record.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from keelbolt.kernel import Collection
from keelbolt.kernel.sqlite import SQLiteKernel

PARTITION = "clock"
FAMILIES = (Collection("doc", expiring=True),)
LEASE_SECONDS = 2.0


async def main(path: str, name: str) -> None:
    async with SQLiteKernel(path, declare=FAMILIES) as kernel:
        print(json.dumps(time.time()), flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            claims = await kernel.claim("queue", name, limit=10, lease_seconds=LEASE_SECONDS)
            record = await kernel.get(PARTITION, "doc", "short-lived")
            print(json.dumps([{claim.key: claim.fence for claim in claims}, record is not None]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
