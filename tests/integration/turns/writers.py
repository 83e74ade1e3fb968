"""Processes that store: one is killed repeatedly, one shares its thread with others.

python writers.py kill URL COUNT      prints the number of complete iterations; fails if one is incomplete
python writers.py store URL NAME COUNT  prints a line when it is ready, and starts when it reads one
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from keelbolt.turns.durable import durable_storage
from keelbolt.turns.in_memory import InMemoryMediaReader
from tests.integration.turns.stage import Calls, Turn, image, memory, message, thought, tool_call

SECONDS = 0.06  # a writer is killed within this time, which is long enough for several iterations


async def iterate_forever(url: str, thread: str, ready: int, after: int) -> None:
    """Run iterations of a turn, each a unit of work: complete or absent after a kill. Signal ``ready`` at ``after``."""
    async with durable_storage(url) as storage:
        turn = Turn(thread, thread=thread)
        calls = Calls(storage.callbacks(), turn)
        for number in itertools.count():
            if number == after:
                os.write(ready, b"!")
            async with storage.unit_of_work(turn):
                await calls.store_message(message(f"a{number}"))
                await calls.store_tool_call(tool_call(f"b{number}"))
                await calls.mutate_tool_call(tool_call(f"b{number}", f"result {number}"))
                await calls.store_thought(thought(f"c{number}"))
                await calls.store_memory(memory(f"{thread}-d{number}"))
                picture = image(InMemoryMediaReader(b"%d" % number))
                await calls.store_message(message(f"e{number}", attachments=[picture]))
                if number:
                    await calls.delete_thought(f"c{number - 1}")


async def whole_iterations(url: str, thread: str) -> int:
    """Return the number of complete iterations; fail if one is incomplete."""
    async with durable_storage(url) as storage:
        calls = Calls(storage.callbacks(), Turn("later", thread=thread))
        messages = await calls.fetch("message")
        count = len(messages) // 2
        assert [each.id for each in messages] == [f"{part}{number}" for number in range(count) for part in "ae"]
        for number, each in enumerate(messages[1::2]):
            assert await each.attachments[0].as_bytes() == b"%d" % number
        results = [(each.id, str(each.results)) for each in await calls.fetch("tool_call")]
        assert results == [(f"b{number}", f"result {number}") for number in range(count)]
        assert await calls.ids("thought") == ([f"c{count - 1}"] if count else [])
        memories = [each for each in await calls.ids("memory") if each.startswith(f"{thread}-")]
        assert memories == [f"{thread}-d{number}" for number in range(count)]
        return count


def kill(url: str, kills: int) -> None:
    chance = random.Random(43)
    whole = 0
    for number in range(kills):
        after = number % 3
        read_end, ready = os.pipe()
        pid = os.fork()
        if not pid:
            asyncio.run(iterate_forever(url, f"t{number}", ready, after))
        os.close(ready)
        assert os.read(read_end, 1) == b"!", "the writer ended by itself"
        os.close(read_end)
        time.sleep(chance.random() * SECONDS)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        found = asyncio.run(whole_iterations(url, f"t{number}"))
        assert found >= after, "what was committed is there"
        whole += found
    print(whole)


async def store(url: str, name: str, count: int) -> None:
    async with durable_storage(url) as storage:
        calls = Calls(storage.callbacks(), Turn(name))
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(count):
            await calls.store_message(message(f"{name}{number}"))


if __name__ == "__main__":
    if sys.argv[1] == "kill":
        kill(sys.argv[2], int(sys.argv[3]))
    else:
        asyncio.run(store(sys.argv[2], sys.argv[3], int(sys.argv[4])))
