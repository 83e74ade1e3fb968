"""Fetches all values in another process and compares them with the stored ones; prints each kind that is equal."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from keelbolt.turns.durable import durable_storage
from tests.integration.turns.stage import FETCHES, Calls, Turn, comparable, one_of_each


async def main(url: str) -> None:
    async with durable_storage(url) as storage:
        calls = Calls(storage.callbacks(), Turn("another turn"))
        for kind in FETCHES:
            expected = [await comparable(value) for of, value in one_of_each() if of == kind]
            assert [await comparable(value) for value in await calls.fetch(kind)] == expected, kind
            print(kind)


asyncio.run(main(sys.argv[1]))
