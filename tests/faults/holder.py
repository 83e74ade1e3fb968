"""A process that holds work and resumes after its lease has ended.

    python -m tests.faults.holder PATH NAME LIMIT LEASE

It claims, prints the claims, waits for a line, then tries every write that a holder can make, and prints the results.
"""

from __future__ import annotations

import asyncio
import json
import sys

from keelbolt.errors import CommitRefused
from keelbolt.kernel import Append, Claim, Collection, Draft, Kernel, Operation, Put
from keelbolt.kernel.sqlite import SQLiteKernel

PARTITION = "faults"
QUEUE = "jobs"
FAMILIES = (Collection("doc"),)


def writes(claim: Claim) -> dict[str, tuple[Operation, ...]]:
    """Return every write that a holder can make under its claim."""
    entry = Append("events", claim.key, (Draft("stale", str(claim.fence).encode()),))
    return {
        "append": (claim.fenced(), entry),
        "put": (claim.fenced(), Put("doc", claim.key, b"stale")),
        "retry": (claim.retry("stale"), entry),
        "release": (claim.release(), entry),
        "bury": (claim.bury("stale"), entry),
        "complete": (claim.complete(), entry),
    }


async def attempt(kernel: Kernel, claim: Claim) -> dict[str, str]:
    outcomes: dict[str, str] = {}
    for name, operations in writes(claim).items():
        try:
            await kernel.commit(PARTITION, *operations)
        except CommitRefused as refusal:
            outcomes[name] = refusal.reason
        else:
            outcomes[name] = "written"
    return outcomes


async def main(path: str, name: str, limit: str, lease: str) -> None:
    async with SQLiteKernel(path, declare=FAMILIES) as kernel:
        claims = await kernel.claim(QUEUE, name, limit=int(limit), lease_seconds=float(lease))
        await kernel.flush()
        print(json.dumps({claim.key: claim.fence for claim in claims}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await kernel.heartbeat(name, lease_seconds=float(lease))  # resuming does not restore the claims
        for claim in claims:
            print(json.dumps(await attempt(kernel, claim)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
