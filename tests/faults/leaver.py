"""A process that ends with pending commits.

    python -m tests.faults.leaver PATH HOW COMMITS

It opens a storage and never closes it, calls commits and awaits none, and then ends: by ``return``, ``exit``,
``raise`` or ``interrupt``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from keelbolt.kernel import Append, Collection, Draft, Put
from keelbolt.kernel.sqlite import SQLiteKernel

PARTITION = "leaver"
FAMILIES = (Collection("doc"),)


class Left(Exception):
    """The error by which the program ends."""


async def main(path: str, how: str, commits: str) -> None:
    kernel = SQLiteKernel(path, declare=FAMILIES)
    await kernel.open()
    for number in range(int(commits)):
        data = str(number).encode() * 20
        kernel.commit(PARTITION, Append("log", "s", (Draft("a", data),)), Put("doc", f"c{number}", data))
    if how == "exit":
        sys.exit(3)
    if how == "raise":
        raise Left
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(30)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
