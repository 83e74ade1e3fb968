"""Units of work, and concurrent writers."""

from __future__ import annotations

import asyncio

import pytest

from keelbolt.errors import TooLarge, TurnStorageDuplicateId, TurnStorageNotFound
from keelbolt.turns.durable import DurableStorage
from tests.integration.turns.stage import (
    Calls,
    Turn,
    memory,
    message,
    thought,
)


async def test_a_unit_of_work_is_all_or_nothing(storage: DurableStorage, calls: Calls) -> None:
    await calls.store_message(message("before"))
    await calls.store_message(message("gone"))

    async def leave_early() -> None:
        async with storage.unit_of_work(Turn()):
            await calls.store_message(message("m1"))
            await calls.mutate_message(message("before", "changed"))
            raise RuntimeError

    async def find_it_taken() -> None:
        async with storage.unit_of_work(Turn()):
            await calls.store_message(message("m1"))
            await calls.store_message(message("before", "other"))

    with pytest.raises(RuntimeError):
        await leave_early()
    with pytest.raises(TurnStorageDuplicateId):
        await find_it_taken()
    assert [str(found.content) for found in await calls.fetch("message")] == ["hello", "hello"]
    async with storage.unit_of_work(Turn()):
        await calls.store_message(message("m1"))
        await calls.store_message(message("m1"))
        await calls.mutate_message(message("m1", "changed"))
        await calls.delete_message("gone")
        await calls.store_thought(thought("t"))
        await calls.delete_thought("t")
        await calls.store_memory(memory("f"))
        with pytest.raises(TurnStorageNotFound):
            await calls.mutate_message(message("gone"))
        assert await calls.ids() == ["before", "gone"], "not before its end"
    assert [(found.id, str(found.content)) for found in await calls.fetch("message")] == [
        ("before", "hello"),
        ("m1", "changed"),
    ]
    assert await calls.ids("thought") == []
    assert await calls.ids("memory") == ["f"]


async def test_writes_of_another_turn_are_not_part_of_a_unit(storage: DurableStorage, calls: Calls) -> None:
    """A unit excludes writes of a callback for another turn, and writes of a task that runs longer than the unit."""
    others = [Calls(storage.callbacks(), turn) for turn in (Turn("other"), Turn("other", tenant="b"))]
    ended = asyncio.Event()

    async def outlive() -> None:
        await ended.wait()
        await calls.store_message(message("late"))

    async with storage.unit_of_work(Turn()):
        await calls.store_message(message("mine"))
        for other in others:
            await other.store_message(message("theirs"))
            assert await other.ids() == ["theirs"]
        late = asyncio.create_task(outlive())
        await asyncio.sleep(0)
    ended.set()
    await late
    assert await calls.ids() == ["theirs", "mine", "late"]


async def test_a_unit_that_is_too_large_says_what_to_do(storage: DurableStorage, calls: Calls) -> None:
    unit = storage.unit_of_work(Turn())
    await unit.__aenter__()
    for number in range(1001):
        await calls.store_message(message(f"m{number}"))
    with pytest.raises(TooLarge, match="checkpoint"):
        await unit.__aexit__(None, None, None)
    await calls.store_message(message("after"))
    assert await calls.ids() == ["after"]


async def test_concurrent_stores_in_one_process(storage: DurableStorage, calls: Calls) -> None:
    """Concurrent stores to one thread are neither lost nor duplicated."""
    await asyncio.gather(*(calls.store_message(message(f"m{number}")) for number in range(50)))
    assert sorted(await calls.ids()) == sorted(f"m{number}" for number in range(50))
    seqs = [row["seq"] async for row in storage.export("acme")]
    assert seqs == sorted(set(seqs))
