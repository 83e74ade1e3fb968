"""A process that stops itself in the middle of a batch, while it holds all locks of the batch.

python -m tests.faults.postgres_stopper URL
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from keelbolt.kernel import Append, Draft, open_storage
from keelbolt.kernel.postgres.rows import PostgresRows
from tests.faults.writer import FAMILIES, PARTITION

_save = PostgresRows.save


async def stop_after_saving(self: PostgresRows, *arguments: Any, **options: Any) -> None:
    await _save(self, *arguments, **options)
    PostgresRows.save = _save  # type: ignore[method-assign]
    os.kill(os.getpid(), signal.SIGSTOP)


async def main(url: str) -> None:
    async with open_storage(url, declare=FAMILIES) as kernel:
        PostgresRows.save = stop_after_saving  # type: ignore[method-assign]
        print("ready", flush=True)
        receipt = await kernel.commit(PARTITION, Append("events", "shared", (Draft("stopped", b"stopped"),)))
        print(receipt.seqs("events", "shared")[0], flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
