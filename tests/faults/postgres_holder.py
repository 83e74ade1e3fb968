"""Like `holder`, on PostgreSQL.

python -m tests.faults.postgres_holder URL NAME LIMIT LEASE
"""

from __future__ import annotations

import asyncio
import json
import sys

from keelbolt.kernel import open_storage
from tests.faults.holder import FAMILIES, QUEUE, attempt


async def main(url: str, name: str, limit: str, lease: str) -> None:
    async with open_storage(url, declare=FAMILIES) as kernel:
        claims = await kernel.claim(QUEUE, name, limit=int(limit), lease_seconds=float(lease))
        print(json.dumps({claim.key: claim.fence for claim in claims}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await kernel.heartbeat(name, lease_seconds=float(lease))  # resuming does not restore the claims
        for claim in claims:
            print(json.dumps(await attempt(kernel, claim)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
