"""A process that forks with a storage open.

    python -m tests.faults.forker PATH [CRASH]

The child tries to use it and to open the same file again, while the parent continues to write. With a crash point, the
parent dies there, and the child only stays alive.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import sys
import time
import warnings

from keelbolt.errors import KeelboltError
from keelbolt.kernel import Append, Collection, Draft, Operation
from keelbolt.kernel.sqlite import SQLiteKernel
from keelbolt.testing.crash import CrashPoint

PARTITION = "fork"
FAMILIES = (Collection("doc"),)
ENTRY: Operation = Append("log", "s", (Draft("a", b""),))


async def uses(kernel: SQLiteKernel, path: str) -> dict[str, str]:
    """Return the result of each use in the child."""
    outcomes: dict[str, str] = {}
    for name in ("commit", "get", "claim", "flush", "close", "open anew"):
        try:
            match name:
                case "commit":
                    await kernel.commit(PARTITION, ENTRY)
                case "get":
                    await kernel.get(PARTITION, "doc", "a")
                case "claim":
                    await kernel.claim("queue", "w")
                case "flush":
                    await kernel.flush()
                case "close":
                    await kernel.close()
                case "open anew":
                    async with SQLiteKernel(path, declare=FAMILIES) as own:
                        await own.commit(PARTITION, ENTRY)
            outcomes[name] = "done"
        except KeelboltError as error:
            outcomes[name] = type(error).__name__
    return outcomes


async def die(path: str, crash: str) -> None:
    async with SQLiteKernel(path, probe=CrashPoint.parse(crash)) as kernel:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        while True:
            await kernel.commit(PARTITION, ENTRY)


async def main(path: str, crash: str = "") -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # the test is about fork() with threads
    if crash:
        await die(path, crash)
    async with SQLiteKernel(path, declare=FAMILIES) as kernel:
        for _ in range(10):
            await kernel.commit(PARTITION, ENTRY)
        child = os.fork()
        if child == 0:
            asyncio.events._set_running_loop(None)
            print(json.dumps(asyncio.run(uses(kernel, path))), flush=True)
            atexit._run_exitfuncs()  # as a child without precautions does
            os._exit(0)
        for _ in range(100):
            await kernel.commit(PARTITION, ENTRY)
            await asyncio.sleep(0.005)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        for _ in range(10):
            await kernel.commit(PARTITION, ENTRY)
        problems = [str(problem) async for problem in kernel.check()]
        state = await kernel.log_state(PARTITION, "log", "s")
    print(json.dumps({"child": status, "head": state.head, "problems": problems}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
