"""A process that writes the same keys as another one in its own order, and claims the other's work.

python -m tests.faults.postgres_crossing URL NAME BATCHES forward|backward
"""

from __future__ import annotations

import asyncio
import sys

from keelbolt.errors import CommitRefused
from keelbolt.kernel import Append, Claim, Draft, Enqueue, Kernel, Put, open_storage
from tests.faults.writer import FAMILIES, PARTITION

KEYS = 12
CALLERS = 4


async def cross(kernel: Kernel, name: str, batches: int, keys: list[str]) -> int:
    """Commit many keys at once; every second commit includes work that others claim at the same time."""
    for number in range(batches):
        puts = [Put("doc", key, name.encode()) for key in keys]
        appends = [Append("events", key, (Draft("cross", name.encode()),)) for key in keys]
        await kernel.commit(PARTITION, *puts, *appends, *(Enqueue("cross", key) for key in keys[:: 1 + number % 2]))
        for claim in await kernel.claim("cross", name, limit=4):
            await complete(kernel, claim)
    return batches


async def complete(kernel: Kernel, claim: Claim) -> None:
    try:
        await kernel.commit(PARTITION, claim.complete())
    except CommitRefused as refusal:
        if refusal.reason != "fence":
            raise


async def main(url: str, name: str, batches: str, order: str) -> None:
    keys = [f"k{number:02}" for number in range(KEYS)]
    if order == "backward":
        keys.reverse()
    async with open_storage(url, declare=FAMILIES) as kernel:
        callers = [cross(kernel, f"{name}-{caller}", int(batches), keys) for caller in range(CALLERS)]
        print(sum(await asyncio.gather(*callers)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
