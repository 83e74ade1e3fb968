"""A process that commits as fast as it can, and runs a checkpoint after every commit, until it is killed.

python -m tests.faults.checkpointer PATH NAME
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading

from keelbolt.storage import Append, Draft
from keelbolt.storage.sqlite import SQLiteKernel


def checkpoints(path: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    while True:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


async def main(path: str, name: str) -> None:
    async with SQLiteKernel(path) as kernel:
        threading.Thread(target=checkpoints, args=(path,), daemon=True).start()
        print("ready", flush=True)
        while True:
            await kernel.commit("open", Append("log", name, (Draft("a", b"x" * 20_000),)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
