"""The number of values that a fetch returns, and the number of records that it reads."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.kernel import Page
from keelbolt.turns.callbacks import FetchPolicy, TopK, Window
from keelbolt.turns.durable import durable_storage
from tests.integration.turns.stage import (
    Calls,
    Turn,
    memory,
    message,
)


async def test_windows_and_the_most_important(url: str) -> None:
    fetch = FetchPolicy(messages=Window(last=3), memories=TopK(2))
    async with durable_storage(url, fetch=fetch) as storage:
        calls = Calls(storage.callbacks(), Turn())
        async with storage.unit_of_work(Turn()):
            for number in range(10):
                await calls.store_message(message(f"m{number}"))
            for number, importance in enumerate((0.1, 1, 0, 0.9, 0.5)):
                await calls.store_memory(memory(f"f{number}", importance))
        await calls.delete_message("m8")
        assert await calls.ids() == ["m6", "m7", "m9"]
        assert await calls.ids("memory") == ["f1", "f3"]
        await calls.delete_memory("f1")
        await calls.mutate_memory(memory("f2", 0.95))
        assert await calls.ids("memory") == ["f2", "f3"]


async def test_a_window_reads_no_more_than_it_returns(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window reads as many records as it returns, regardless of older and deleted records."""
    read: list[int] = []
    async with durable_storage(url, fetch=FetchPolicy(messages=Window(last=20), memories=TopK(20))) as storage:
        calls, find = Calls(storage.callbacks(), Turn()), storage.kernel.find
        for start in range(0, 600, 200):
            async with storage.unit_of_work(Turn()):
                for number in range(start, start + 200):
                    await calls.store_message(message(f"m{number}"))
                    await calls.store_memory(memory(f"f{number}", number / 1000))
        async with storage.unit_of_work(Turn()):
            for number in range(100, 580):
                await calls.delete_message(f"m{number}")

        async def counted(*args: Any, **options: Any) -> Page:
            page = await find(*args, **options)
            read.append(len(page.records))
            return page

        monkeypatch.setattr(storage.kernel, "find", counted)
        assert await calls.ids() == [f"m{number}" for number in range(580, 600)]
        assert await calls.ids("memory") == [f"f{number}" for number in range(580, 600)]
        assert read == [20, 20]


async def test_fetched_tools_are_the_given_ones(url: str) -> None:
    async with durable_storage(url, tools=lambda ctx: [ctx.id]) as storage:
        assert await Calls(storage.callbacks(), Turn()).fetch_tools() == ["turn-1"]
