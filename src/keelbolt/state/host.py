"""Where a store's kernel lives: in a thread of its own (see `thread_host`), or in the loop of one that is open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar

from keelbolt.errors import StorageClosed
from keelbolt.state.link import CLOSED, Link
from keelbolt.state.writer import Writer
from keelbolt.state.writes import Write
from keelbolt.storage import Kernel

T = TypeVar("T")

Engine = Callable[[], tuple[Link, Writer]]


class Host(Protocol):
    """What a store asks of the place where its kernel lives."""

    @property
    def writer(self) -> Writer | None:
        """The writer, once there is one."""

    def post(self, write: Write) -> None:
        """Take a write, in the order of the calls."""

    async def ask(self, function: Callable[[Kernel], Awaitable[T]]) -> T:
        """Call this with the kernel, after everything that was posted before is committed."""

    def begin(self, function: Callable[[Kernel], Awaitable[T]], *, seconds: float | None = None) -> Future[T]:
        """`ask`, at once and whether anybody waits for it or not; `close` waits for it, for so many seconds."""

    async def flush(self) -> None:
        """Return when everything that was posted before is committed, spooled or lost."""

    async def close(self) -> None:
        """Finish, and let go of the kernel."""

    def abandon(self) -> None:
        """Accept nothing more, and finish without a caller that waits."""


class LoopHost:
    """On a kernel that is open, in its loop."""

    def __init__(self, engine: Engine) -> None:
        self._link, self.writer = engine()
        self._begun = Begun()

    def post(self, write: Write) -> None:
        self.writer.take((write,))

    async def ask(self, function: Callable[[Kernel], Awaitable[T]]) -> T:
        return await ask_kernel(self._link, self.writer, function)

    def begin(self, function: Callable[[Kernel], Awaitable[T]], *, seconds: float | None = None) -> Future[T]:
        work = self._begun.run(partial(self.ask, function), seconds)
        return asyncio.run_coroutine_threadsafe(work, asyncio.get_running_loop())

    async def flush(self) -> None:
        await self._begun.finish()
        await self.writer.settle()
        await self.writer.recovery.replay()

    async def close(self) -> None:
        await self._begun.finish()
        await self.writer.close()
        await self._link.close()

    def abandon(self) -> None:
        """The owner of the kernel closes it."""


class Begun:
    """Work that goes on whether anybody waits for it or not."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Do it, for so long; it counts from its first step to its last."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async with asyncio.timeout(seconds):
                return await work()
        finally:
            self._tasks.discard(task)

    async def finish(self) -> None:
        """Return when all of it is done."""
        if self._tasks:
            await asyncio.wait(self._tasks)


async def claimed(
    host: Host, function: Callable[[Kernel], Awaitable[T]], unclaimed: Callable[[T], None], *, seconds: float
) -> T:
    """`Host.ask`, where the answer is lost if nobody takes it: when the caller has gone ``unclaimed`` is given it,
    if it comes within so many seconds.
    """
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # so that whoever waits for it can't cancel it

    async def run(kernel: Kernel) -> None:
        try:
            answer.set_result(await function(kernel))
        except BaseException as error:
            answer.set_exception(error)
            raise

    begun = host.begin(run, seconds=seconds)
    begun.add_done_callback(partial(_failed, answer))
    try:
        return await asyncio.wrap_future(answer)
    except asyncio.CancelledError:
        answer.add_done_callback(lambda done: None if done.exception() else unclaimed(done.result()))
        raise


def _failed(answer: Future[Any], begun: Future[None]) -> None:
    """It did not come as far as answering."""
    if not answer.done():
        answer.set_exception(StorageClosed(CLOSED) if begun.cancelled() else begun.exception() or StorageClosed(CLOSED))


async def ask_kernel(link: Link, writer: Writer, function: Callable[[Kernel], Awaitable[T]]) -> T:
    """What the function answers, called with the kernel when all that was taken before is committed."""
    await writer.settle()
    await writer.recovery.replay()
    try:
        return await function(await link.opened())
    except Exception as error:
        await link.broke(error)
        raise
