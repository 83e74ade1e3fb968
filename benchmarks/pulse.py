"""A process that appends the time of its clock to a stream at intervals."""

from __future__ import annotations

import asyncio
import sys
import time

from keelbolt.kernel import Append, Draft, open_storage


async def main(url: str, stream: str, count: int) -> None:
    async with open_storage(url) as kernel:
        await asyncio.sleep(0.5)
        for _ in range(count):
            await asyncio.sleep(0.005)
            stamp = str(time.monotonic()).encode()
            await kernel.commit("bench/pulse", Append("bench-log", stream, (Draft("pulse", stamp),)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
