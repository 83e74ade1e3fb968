"""Many callers on one storage: each commit replaces a record and appends a log entry. Can run as its own program."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass

from keelbolt.kernel import Append, Collection, Draft, Insert, Kernel, Replace, new_id, open_storage

CALLERS = 64
BODY = b'{"state": "working", "text": "' + b"x" * 170 + b'"}'
CHUNK = b'{"kind": "artifact", "text": "' + b"y" * 170 + b'"}'
TASKS = Collection("bench-task", fields={"state": str})


@dataclass(frozen=True, slots=True)
class Load:
    """The result of a load: commits per second, and milliseconds from call to acknowledgement."""

    rate: float
    p50: float
    p99: float


async def commits(
    kernel: Kernel,
    *,
    seconds: float,
    callers: int = CALLERS,
    starts_at: float | None = None,
    partition: str | None = None,
) -> Load:
    """Run this many callers for this time; each commits again as soon as its last commit returns.

    In a given partition, the records and logs are named 0, 1, …, so that other processes can find them.
    """
    fields = {"state": "working"}
    keys = [new_id() if partition is None else str(number) for number in range(callers)]
    partition = partition or f"bench/{new_id()}"
    await asyncio.gather(*(kernel.commit(partition, Insert("bench-task", key, BODY, fields)) for key in keys))
    if starts_at is not None:
        await asyncio.sleep(max(starts_at - time.monotonic(), 0))
    times: list[float] = []
    start = time.perf_counter()
    end = start + seconds

    async def caller(key: str) -> None:
        version = 1
        while (called := time.perf_counter()) < end:
            await kernel.commit(
                partition,
                Replace("bench-task", key, version, BODY, fields),
                Append("bench-log", key, (Draft("chunk", CHUNK),)),
            )
            version += 1
            times.append(time.perf_counter() - called)

    await asyncio.gather(*map(caller, keys))
    rate = len(times) / (time.perf_counter() - start)
    times.sort()
    return Load(rate, 1000 * times[len(times) // 2], 1000 * times[int(len(times) * 0.99)])


async def main(url: str, seconds: float, starts_at: float) -> None:
    async with open_storage(url, declare=[TASKS]) as kernel:
        load = await commits(kernel, seconds=seconds, starts_at=starts_at)
    print(json.dumps({"rate": load.rate, "p50": load.p50, "p99": load.p99}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
