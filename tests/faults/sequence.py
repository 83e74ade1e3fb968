"""A process that makes one commit after the other, each a record and an entry, and prints the number of the last.

python -m tests.faults.sequence PATH COMMITS
"""

from __future__ import annotations

import asyncio
import json
import sys

from keelbolt.errors import StorageError
from keelbolt.kernel import Append, Collection, Draft, Kernel, Put
from keelbolt.kernel.sqlite import SQLiteKernel

PARTITION = "faults"
FAMILIES = (Collection("doc"),)


async def write_one(kernel: Kernel, number: int) -> None:
    """Commit a record and an entry whose version and seq are both this number."""
    body = str(number).encode() * 50
    receipt = await kernel.commit(PARTITION, Append("log", "s", (Draft("a", body),)), Put("doc", "s", body))
    assert receipt.seqs("log", "s") == (receipt.version("doc", "s"),)


async def main(path: str, commits: str) -> None:
    acknowledged, error, then, reads = 0, None, [], False
    async with SQLiteKernel(path, declare=FAMILIES) as kernel:
        for number in range(1, int(commits) + 1):
            try:
                await write_one(kernel, number)
                acknowledged = number
            except StorageError as failure:
                error = type(failure).__name__
                break
        for _ in range(3):
            if error is None:
                break
            try:
                await write_one(kernel, acknowledged + 1)
            except StorageError as failure:
                then.append(type(failure).__name__)
        record = await kernel.get(PARTITION, "doc", "s")
        reads = (record.version if record else 0) >= acknowledged
    print(json.dumps({"acknowledged": acknowledged, "error": error, "then": then, "reads": reads}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
