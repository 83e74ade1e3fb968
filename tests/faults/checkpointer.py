"""A process that commits as fast as it can, with a checkpoint after every commit, COMMITS times or until it is killed.

python -m tests.faults.checkpointer PATH NAME [COMMITS]
"""

from __future__ import annotations

import asyncio
import itertools
import sys

from keelbolt.kernel import Append, Draft
from keelbolt.kernel.sqlite import SQLiteKernel, writer

vars(writer)["WAL_PAGES"] = 0  # a checkpoint is due after every batch


async def main(path: str, name: str, commits: str = "") -> None:
    async with SQLiteKernel(path) as kernel:
        print("ready", flush=True)
        for _ in range(int(commits)) if commits else itertools.count():
            await kernel.commit("open", Append("log", name, (Draft("a", b"x" * 20_000),)))
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
