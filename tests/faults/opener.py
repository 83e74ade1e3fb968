"""A process that opens a storage when it reads a line, and writes.

python -m tests.faults.opener PATH NAME COMMITS
"""

from __future__ import annotations

import asyncio
import sys

from keelbolt.kernel import Append, Collection, Draft, Index, Insert
from keelbolt.kernel.sqlite import SQLiteKernel

PARTITION = "open"
FAMILIES = (
    Collection("doc", fields={"who": str}, indexes=(Index("by_who", equal=("who",)),), counters=((), ("who",))),
)


async def main(path: str, name: str, commits: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    async with SQLiteKernel(path, declare=FAMILIES) as kernel:
        for number in range(int(commits)):
            await kernel.commit(
                PARTITION,
                Insert("doc", f"{name}-{number}", b"", {"who": name}),
                Append("log", "s", (Draft("a", name.encode()),)),
            )
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
