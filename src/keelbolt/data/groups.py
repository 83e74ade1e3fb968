"""Handles many items in groups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

FIRST, MOST = 4, 64  # items in a group
GROUP_SECONDS = 0.1  # aim for a group

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Groups:
    """Handles the items of a group at the same time, so that their commits share a transaction of the store.

    Other writers wait for that transaction. Items differ much in size, so the size of a group follows the duration of
    the one before.
    """

    __slots__ = ("_size",)

    def __init__(self) -> None:
        self._size = FIRST

    async def each(self, handle: Callable[[Item], Awaitable[Answer]], items: Sequence[Item]) -> list[Answer]:
        """Call this for each item and return the answers. If calls of a group fail, raise an error of one of them."""
        answers: list[Answer] = []
        while len(answers) < len(items):
            group = items[len(answers) : len(answers) + self._size]
            began = time.perf_counter()
            outcomes = await asyncio.gather(*map(handle, group), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                answers.append(outcome)
            slow = time.perf_counter() - began > GROUP_SECONDS
            self._size = max(self._size // 2, 1) if slow else min(self._size * 2, MOST)
        return answers
