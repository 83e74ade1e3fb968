"""Writes the given number of MiB of text as one stream and reads it; prints the growth of the process in bytes."""

from __future__ import annotations

import asyncio
import random
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from keelbolt.turns.durable import durable_storage
from tests.integration.turns.stage import Calls, Turn

LINE = b"line %012d of a long text that does not belong into memory as a whole\n"
MIB = 1024 * 1024


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def lines(count: int) -> AsyncIterator[bytes]:
    for start in range(0, count, 1000):
        yield b"".join([LINE % number for number in range(start, min(start + 1000, count))])


async def main(url: str, mib: int) -> None:
    count = mib * MIB // len(LINE % 0)
    async with durable_storage(url) as storage:
        calls = Calls(storage.callbacks(), Turn())
        await calls.store_retrievable_bytes("warm", lines(10_000))
        before = peak()
        reader = await calls.store_retrievable_bytes("large", lines(count))
        assert await reader.line_count() == count + 1
        chance = random.Random(1)
        for number in [0, count - 1, *(chance.randrange(count) for _ in range(10))]:
            assert await reader.line(number) == (LINE % number).decode().rstrip("\n"), number
        size = 0
        async for piece in reader.stream():
            size += len(piece)
        assert size == await reader.byte_length() == count * len(LINE % 0)
        print(peak() - before)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
