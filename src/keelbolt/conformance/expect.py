"""Expectations of laws, with messages that show the found and the expected value."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")

SHOWN_CHARS = 300
PATIENCE_SECONDS = 10.0


class LawBroken(AssertionError):
    """The subject does not obey the law."""


def broken(message: str) -> NoReturn:
    raise LawBroken(message)


def expect(condition: object, message: str) -> None:
    if not condition:
        broken(message)


def equal(found: object, wanted: object, what: str) -> None:
    if found != wanted or type(found) is not type(wanted):
        broken(f"{what}: expected {show(wanted)}, found {show(found)}")


def show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text)} characters)"


@dataclass(slots=True)
class Caught(Generic[E]):
    error: E | None = None

    def __call__(self) -> E:
        if self.error is None:
            broken("no error was raised")
        return self.error


@contextmanager
def raises(*kinds: type[E]) -> Iterator[Caught[E]]:
    """The block raises one of these errors, and no other."""
    wanted = " or ".join(kind.__name__ for kind in kinds)
    caught: Caught[E] = Caught()
    try:
        yield caught
    except kinds as error:
        caught.error = error
        return
    except LawBroken:
        raise
    except Exception as error:
        message = f"expected {wanted}, but {type(error).__name__} was raised: {error}"
        raise LawBroken(message) from error
    broken(f"expected {wanted}, but no error was raised")


async def soon(work: Awaitable[T], what: str, *, seconds: float | None = None) -> T:
    """The result of ``work``, which must end in time."""
    seconds = PATIENCE_SECONDS if seconds is None else seconds
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        broken(f"{what} did not end within {seconds} s")


async def collect(entries: AsyncIterator[T], count: int, *, seconds: float | None = None) -> list[T]:
    """The next ``count`` items of an endless iterator."""
    seconds = PATIENCE_SECONDS if seconds is None else seconds
    items: list[T] = []
    try:
        async with asyncio.timeout(seconds):
            while len(items) < count:
                items.append(await anext(entries))
    except TimeoutError:
        broken(f"expected {count} items within {seconds} s, but {len(items)} came: {show(items)}")
    return items


@asynccontextmanager
async def following(tail: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Closes the tail afterwards."""
    try:
        yield tail
    finally:
        if isinstance(tail, AsyncGenerator):
            await tail.aclose()


async def eventually(condition: Callable[[], Awaitable[object]], message: str, *, seconds: float | None = None) -> None:
    """The condition becomes true in time."""
    seconds = PATIENCE_SECONDS if seconds is None else seconds
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        if asyncio.get_running_loop().time() > deadline:
            broken(f"{message} (waited {seconds} s)")
        await asyncio.sleep(0.02)
