"""A process with its own wall clock that tries to claim work before it is free.

    python -m tests.faults.prober PATH NAME

It prints its wall clock, then, for each line of input, the items that it could claim and whether it sees the record.
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
