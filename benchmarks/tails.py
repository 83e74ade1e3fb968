"""A process that tails logs for a while."""

from __future__ import annotations

import asyncio
import sys

from keelbolt.kernel import Kernel, open_storage


async def follow(kernel: Kernel, stream: str) -> None:
    async for _ in kernel.tail("bench/tailed", "bench-log", stream, after=0):
        pass


async def main(url: str, count: int, seconds: float) -> None:
    async with open_storage(url) as kernel:
        tails = [asyncio.create_task(follow(kernel, str(number % 32))) for number in range(count)]
        print("ready", flush=True)
        await asyncio.sleep(seconds)
        for tail in tails:
            tail.cancel()
        await asyncio.gather(*tails, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
